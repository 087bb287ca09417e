"""What pynsq does against a broker: publish, consume, requeue, touch, TLS 1.2, Snappy, Deflate, AUTH.

Started by pynsq.sh. NSQD and NSQLOOKUPD are commands; their ports are read from their logs. Prints
`ok NAME` or `FAIL NAME` for each check, and ends with `N passed, N failed`.
"""
import asyncio
import http.server
import json
import os
import re
import shlex
import ssl
import subprocess
import sys
import tempfile
import threading
import traceback
import urllib.parse

import nsq

WORK = os.environ["WORK"]
SECRET = "opensesame"
PATIENCE_S = 15
LISTENING = re.compile(r"\b(TCP|HTTP): listening on \S+:(\d+)")


class Server:
    """A broker or lookupd on ports of its own."""

    def __init__(self, command, *args):
        self.ports = {}
        self.log = []
        self.ready = threading.Event()
        address = ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0", "--broadcast-address=127.0.0.1"]
        self.child = subprocess.Popen(
            shlex.split(command) + address + list(args), stderr=subprocess.PIPE, text=True
        )
        threading.Thread(target=self.read, daemon=True).start()
        self.ready.wait(PATIENCE_S)
        if len(self.ports) < 2:
            self.stop()
            raise RuntimeError("it did not start: " + "".join(self.log[-3:]))

    def read(self):
        for line in self.child.stderr:
            self.log = self.log[-20:] + [line]
            found = LISTENING.search(line)
            if found:
                self.ports[found[1]] = int(found[2])
            if len(self.ports) == 2:
                self.ready.set()
        self.ready.set()

    def address(self, door):
        return f"127.0.0.1:{self.ports[door]}"

    def stop(self):
        self.child.kill()
        self.child.wait()


def broker(*args):
    return Server(os.environ["NSQD"], f"--data-path={tempfile.mkdtemp(dir=WORK)}", *args)


class AuthHandler(http.server.BaseHTTPRequestHandler):
    """Grants `open_topic` to who knows the secret, and nothing to others."""

    def do_GET(self):
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        grants = []
        if query.get("secret") == [SECRET]:
            grants = [{"topic": "^open_topic$", "channels": [".*"], "permissions": ["subscribe", "publish"]}]
        body = json.dumps({"ttl": 60, "identity": "tester", "identity_url": "", "authorizations": grants})
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *args):
        pass


async def until(what, probe):
    for _ in range(PATIENCE_S * 50):
        if probe():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"gave up waiting for {what}")


async def publish(address, topic, bodies, command="pub", **options):
    """Publishes and waits for every answer."""
    writer = nsq.Writer([address], reconnect_interval=600, **options)
    await until("the writer's connection", lambda: writer.conns)
    answers = []
    note = lambda conn, data: answers.append(data)
    if command == "mpub":
        writer.mpub(topic, bodies, callback=note)
    elif command == "dpub":
        writer.dpub(topic, 300, bodies[0], callback=note)
    else:
        for body in bodies:
            writer.pub(topic, body, callback=note)
    expected = len(bodies) if command == "pub" else 1
    await until("the writer's answers", lambda: len(answers) == expected)
    assert all(answer == b"OK" for answer in answers), answers
    close(writer)


class Reader(nsq.Reader):
    """Keeps what was negotiated."""

    def _on_connection_identify_response(self, conn, data, **kwargs):
        self.negotiated = data
        super()._on_connection_identify_response(conn, data, **kwargs)


def read(topic, handler, **options):
    return Reader(
        topic, "ch", message_handler=handler, max_in_flight=10,
        lookupd_poll_interval=1, lookupd_poll_jitter=0.0, **options)


async def consume(topic, count, **options):
    """Consumes so many messages; gives their bodies, sorted, once what was asked for is negotiated."""
    bodies = []
    reader = read(topic, lambda message: bodies.append(message.body) or True, **options)
    await until(f"{count} messages", lambda: len(bodies) >= count)
    for feature in ("tls_v1", "snappy", "deflate"):
        assert reader.negotiated[feature] == bool(options.get(feature)), f"{feature} was not negotiated"
    close(reader)
    return sorted(bodies)


def close(client):
    if hasattr(client, "close"):
        client.close()
    for connection in list(client.conns.values()):
        connection.close()


def tls():
    return {
        "tls_v1": True,
        "tls_options": {"cert_reqs": ssl.CERT_NONE, "ssl_version": ssl.PROTOCOL_TLSv1_2},
    }


BODIES = [f"message {n}".encode() * 50 for n in range(20)]


async def round_trip(server, topic, **options):
    address = server.address("TCP")
    await publish(address, topic, BODIES, **options)
    await publish(address, topic, BODIES, "mpub", **options)
    bodies = await consume(topic, 40, nsqd_tcp_addresses=[address], **options)
    assert bodies == sorted(BODIES * 2), f"{len(bodies)} bodies"


async def plain(server):
    await round_trip(server, "plain")


async def deferred(server):
    address = server.address("TCP")
    await publish(address, "later", [b"late"], "dpub")
    bodies = await consume("later", 1, nsqd_tcp_addresses=[address])
    assert bodies == [b"late"]


async def requeue(server):
    address = server.address("TCP")
    await publish(address, "again", [b"one"])
    attempts = []

    def handler(message):
        attempts.append(message.attempts)
        return message.attempts > 1

    reader = read(
        "again", handler, nsqd_tcp_addresses=[address], requeue_delay=0, max_backoff_duration=1)
    await until("the second attempt", lambda: attempts == [1, 2])
    close(reader)


async def touch(server):
    address = server.address("TCP")
    await publish(address, "kept", [b"one"])
    attempts, done = [], []

    def handler(message):
        message.enable_async()
        attempts.append(message.attempts)
        loop = asyncio.get_running_loop()
        loop.call_later(0.7, message.touch)
        loop.call_later(1.4, lambda: (message.finish(), done.append(1)))

    reader = read("kept", handler, nsqd_tcp_addresses=[address], msg_timeout=1)
    await until("the end of the message", lambda: done)
    await asyncio.sleep(0.5)
    assert attempts == [1], attempts
    close(reader)


async def heartbeat(server):
    address = server.address("TCP")
    beats, bodies = [], []
    reader = read(
        "beats", lambda message: bodies.append(1) or True,
        nsqd_tcp_addresses=[address], heartbeat_interval=1)
    await until("a connection", lambda: reader.conns)
    connection = next(iter(reader.conns.values()))
    connection.on("heartbeat", lambda conn: beats.append(1))
    await until("three heartbeats", lambda: len(beats) >= 3)
    await publish(address, "beats", [b"alive"])
    await until("a message after them", lambda: bodies)
    close(reader)


async def lookup(server, lookupd):
    await publish(server.address("TCP"), "found", BODIES)
    bodies = await consume("found", 20, lookupd_http_addresses=[f"http://{lookupd.address('HTTP')}"])
    assert bodies == sorted(BODIES)


async def tls_snappy(server):
    await round_trip(server, "tls_snappy", snappy=True, **tls())


async def tls_deflate(server):
    await round_trip(server, "tls_deflate", deflate=True, deflate_level=6, **tls())


async def tls_only(server):
    await round_trip(server, "tls_only", **tls())


async def snappy_only(server):
    await round_trip(server, "snappy_only", snappy=True)


async def deflate_only(server):
    await round_trip(server, "deflate_only", deflate=True)


async def auth_granted(server):
    await round_trip(server, "open_topic", auth_secret=SECRET)


class Writer(nsq.Writer):
    """Keeps the errors that came."""

    def _on_connection_error(self, conn, error, **kwargs):
        self.errors.append(str(error))
        super()._on_connection_error(conn, error, **kwargs)


async def refused(server, topic, secret, code):
    """A publish that must not come through, with the broker's error."""
    writer = Writer([server.address("TCP")], reconnect_interval=600, auth_secret=secret)
    writer.errors = []
    await until("a connection or an error", lambda: writer.conns or writer.errors)
    if writer.conns:
        writer.pub(topic, b"no", callback=lambda conn, data: writer.errors.append(str(data)))
    await until("a refusal", lambda: writer.errors)
    assert code in writer.errors[0], writer.errors
    close(writer)


async def auth_other_topic(server):
    await refused(server, "closed_topic", SECRET, "E_UNAUTHORIZED")


async def auth_wrong_secret(server):
    await refused(server, "open_topic", "wrong", "E_UNAUTHORIZED")


async def main():
    passed = failed = 0
    tls_flags = [f"--tls-cert={WORK}/cert.pem", f"--tls-key={WORK}/key.pem"]
    auth = http.server.ThreadingHTTPServer(("127.0.0.1", 0), AuthHandler)
    threading.Thread(target=auth.serve_forever, daemon=True).start()
    groups = [
        ([], [plain, deferred, requeue, touch, heartbeat, snappy_only, deflate_only]),
        (tls_flags, [tls_only, tls_snappy, tls_deflate]),
        ([f"--auth-http-address=127.0.0.1:{auth.server_address[1]}"],
         [auth_granted, auth_other_topic, auth_wrong_secret]),
    ]

    async def check(test, *servers):
        nonlocal passed, failed
        try:
            await asyncio.wait_for(test(*servers), 2 * PATIENCE_S)
            passed += 1
            print(f"ok    {test.__name__}", flush=True)
        except Exception as error:
            failed += 1
            line = traceback.extract_tb(error.__traceback__)[-1].lineno
            print(f"FAIL  {test.__name__}\n      {type(error).__name__} in line {line}: {error}", flush=True)

    for flags, tests in groups:
        try:
            server = broker(*flags)
        except RuntimeError as error:
            # Without its broker none of the group can run, and each of it says so.
            for test in tests:
                failed += 1
                print(f"FAIL  {test.__name__}\n      {error}", flush=True)
            continue
        for test in tests:
            await check(test, server)
        server.stop()
    lookupd = Server(os.environ["NSQLOOKUPD"])
    server = broker(f"--lookupd-tcp-address={lookupd.address('TCP')}")
    await check(lookup, server, lookupd)
    server.stop()
    lookupd.stop()
    print(f"{passed} passed, {failed} failed")
    sys.stdout.flush()
    os._exit(1 if failed else 0)


asyncio.run(main())
