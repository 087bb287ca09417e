/**
 * TLS of a server over a socket that is there already. The runtime verifies a client's certificate
 * (chain, dates, use) only behind a TLS server, so each handshake gets one of its own, which hears
 * of this one socket. A client that goes away in the middle is noticed when its time is over.
 */
import type { Socket } from "node:net";
import { createServer, type TlsOptions, type TLSSocket } from "node:tls";
import type { Clock } from "./clock.ts";
import type { TlsSettings, TlsState } from "./tls.ts";

/** The settings in the runtime's words. A client without a certificate is left to {@linkcode tlsState}. */
export function tlsOptions(settings: TlsSettings): TlsOptions {
  const { certificate, key, authorities, clientPolicy, versionMin } = settings;
  return {
    cert: certificate,
    key,
    minVersion: versionMin,
    // What any certificate may do must not depend on who signed it.
    requestCert: clientPolicy !== "none",
    rejectUnauthorized: clientPolicy === "require-verify",
    ...(clientPolicy === "require-verify" && authorities !== null ? { ca: authorities } : {}),
  };
}

/** What a handshake has settled, or `null` when the client may not go on. */
export function tlsState(socket: TLSSocket, settings: TlsSettings): TlsState | null {
  const subject = clientSubject(socket);
  switch (settings.clientPolicy) {
    case "none":
      break;
    case "require":
      if (subject === null) return null;
      break;
    case "require-verify":
      if (subject === null || !socket.authorized) return null;
  }
  const { CN } = subject ?? {};
  return {
    version: (socket.getProtocol() ?? "").replace("TLSv", "TLS"),
    cipherSuite: socket.getCipher().standardName,
    commonName: (Array.isArray(CN) ? CN[0] : CN) ?? "",
  };
}

/** Answers a handshake on `socket`, which is paused; rejects when it fails. The socket is then closed. */
export function answerHandshake(
  socket: Socket,
  settings: TlsSettings,
  clock: Clock,
  timeoutMs: number,
): Promise<{ readonly socket: TLSSocket; readonly state: TlsState }> {
  return new Promise((resolve, reject) => {
    let isOver = false;
    const end = () => {
      isOver = true;
      timer.cancel();
      socket.removeListener("close", onClose);
    };
    const fail = (reason: string, cause?: Error) => {
      if (isOver) return;
      end();
      socket.destroy();
      reject(new Error(reason, { cause }));
    };
    const onClose = () => fail("the connection ended in the handshake");
    socket.once("close", onClose);
    const timer = clock.setTimer(timeoutMs, () => fail(`no handshake within ${timeoutMs} ms`));
    try {
      const server = createServer({ ...tlsOptions(settings), allowHalfOpen: true });
      server.once("tlsClientError", (error) => fail(error.message, error));
      server.once("secureConnection", (secure) => {
        // What goes wrong later is told to whoever reads or writes.
        secure.on("error", () => {});
        if (isOver) return secure.destroy();
        const state = tlsState(secure, settings);
        if (state === null) return fail("the client shows no certificate");
        end();
        resolve({ socket: secure, state });
      });
      server.emit("connection", socket);
    } catch (error) {
      fail(error instanceof Error ? error.message : String(error));
    }
  });
}

/** The subject of the client's certificate, or `null` without one. */
function clientSubject(
  socket: TLSSocket,
): Readonly<Record<string, string | string[] | undefined>> | null {
  // Typed as always there, and not there without a certificate.
  const certificate: Partial<ReturnType<TLSSocket["getPeerCertificate"]>> | undefined = socket
    .getPeerCertificate();
  const { subject } = certificate ?? {};
  return subject === undefined ? null : { ...subject };
}
