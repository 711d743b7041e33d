// Keeps a Node program on this machine: what it looks up or connects to elsewhere fails, and is noted.
// NODE_OPTIONS imports it; LOOPBACK_NOTES names the file for the notes.
import { appendFileSync } from "node:fs";
import net from "node:net";

const local = new Set(["localhost", "127.0.0.1", "::1", undefined]);
const connect = net.Socket.prototype.connect;

net.Socket.prototype.connect = function (...args) {
  const [options] = Array.isArray(args[0]) ? args[0] : args;
  const host = typeof options === "object" ? options.host : typeof args[1] === "string" ? args[1] : undefined;
  if (!local.has(host)) {
    appendFileSync(process.env.LOOPBACK_NOTES, `connect ${host}\n`);
    throw new Error(`${host} is not this machine`);
  }
  return connect.apply(this, args);
};
