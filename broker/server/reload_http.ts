/**
 * `POST /v1/reload`: what SIGHUP does, with an answer.
 *
 * ```
 * 200  {"changed":[{"name":"log-level","before":"info","after":"debug","origin":"file"}],
 *       "needs_restart":[{"name":"data-path","in_use":"/a","configured":"/b"}],
 *       "files":[{"setting":"tls-cert","path":"/cert.pem","outcome":"unchanged"}]}
 * 422  {"message":"INVALID_SETTINGS","problems":["..."]}     nothing has changed
 * ```
 */
import { type HttpRoute, jsonReply } from "@sluice/shared/http";

/** What a reload has come to, for the answer. */
export type ReloadAnswer =
  | {
    readonly changed: readonly unknown[];
    readonly needs_restart: readonly unknown[];
    readonly files: readonly unknown[];
  }
  | { readonly problems: readonly string[] };

/** Where there are no settings to read again nothing changes. */
const NOTHING: ReloadAnswer = { changed: [], needs_restart: [], files: [] };

/** The route. */
export function reloadRoute(reload = () => Promise.resolve(NOTHING)): HttpRoute {
  return {
    method: "POST",
    path: "/v1/reload",
    handle: async () => {
      const answer = await reload();
      if (!("problems" in answer)) return jsonReply(answer);
      return jsonReply({ message: "INVALID_SETTINGS", problems: answer.problems }, 422);
    },
  };
}
