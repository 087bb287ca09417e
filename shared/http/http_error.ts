/** A refusal a handler throws; the door answers it with `status` and `{"message":"CODE"}`. */
export class HttpError extends Error {
  override name = "HttpError";
  constructor(readonly status: number, readonly code: string, options?: ErrorOptions) {
    super(code, options);
  }
}
