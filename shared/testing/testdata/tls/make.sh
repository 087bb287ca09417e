#!/bin/sh
# Makes the certificates of the tests anew, in the folder of this script. They are for tests only:
# the keys are public. All but expired.pem are good for a century.
#
#   ca        the authority
#   server    localhost, signed by the authority
#   renewed   the same with another key
#   client    test.local, a client that the authority signed
#   expired   the same, not valid any more
#   unsigned  a client that signed itself
set -eu
cd "$(dirname "$0")"
days=36500

key_and_request() {
  openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
    -keyout "$1.key" -out "$1.csr" -subj "/CN=$2"
}
self_signed() {
  name=$1 subject=$2
  shift 2
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days $days \
    -keyout "$name.key" -out "$name.pem" -subj "/CN=$subject" "$@"
}
sign() {
  printf 'basicConstraints=CA:FALSE\n%s\n' "$3" > extensions
  openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days "$2" \
    -out "$1.pem" -extfile extensions
}

self_signed ca "test authority" -addext basicConstraints=critical,CA:TRUE \
  -addext keyUsage=critical,keyCertSign
self_signed unsigned unsigned.local -addext basicConstraints=CA:FALSE \
  -addext extendedKeyUsage=clientAuth
for name in server renewed; do
  key_and_request $name localhost
  sign $name $days "subjectAltName=DNS:localhost,IP:127.0.0.1
extendedKeyUsage=serverAuth"
done
key_and_request client test.local
sign client $days extendedKeyUsage=clientAuth
key_and_request expired expired.local
sign expired -1 extendedKeyUsage=clientAuth
rm -f ./*.csr ./*.srl extensions ca.key
