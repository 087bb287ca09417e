/**
 * Connections that may wait to be accepted, on every door. When a service comes back, all of its clients
 * connect at once; who finds no room tries again after a second. The system may have a lower bound
 * (`net.core.somaxconn`).
 */
export const LISTEN_BACKLOG = 4096;
