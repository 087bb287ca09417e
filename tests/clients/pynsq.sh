#!/usr/bin/env bash
# Runs pynsq.py with the pynsq of the registry (pinned). NSQD and NSQLOOKUPD are the commands of the
# broker under test and its lookupd. Needs python3 (3.8 to 3.11) and openssl.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# pynsq 0.9.1 takes a partial compressed chunk for a broken connection with any later tornado.
export NSQD=${NSQD:-nsqd} NSQLOOKUPD=${NSQLOOKUPD:-nsqlookupd} WORK=$work
python3 -m venv "$work/venv"
"$work/venv/bin/pip" -q --disable-pip-version-check install pynsq==0.9.1 tornado==6.0.4 "setuptools<70" wheel python-snappy==0.7.3
openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost \
  -keyout "$work/key.pem" -out "$work/cert.pem" 2>/dev/null
exec "$work/venv/bin/python" "$here/pynsq.py"
