/** What HTTP in clear answers where TLS is required: that, whatever was asked, and the port. */

/** nsqd's document, with its spaces. */
export function tlsRequiredHttp(httpsPort: number): () => Response {
  return () =>
    new Response(`{"message": "TLS_REQUIRED", "https_port": ${httpsPort}}`, {
      status: 403,
      headers: [
        ["X-NSQ-Content-Type", "nsq; version=1.0"],
        ["Content-Type", "application/json; charset=utf-8"],
      ],
    });
}
