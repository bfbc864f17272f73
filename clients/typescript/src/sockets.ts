/** A WebSocket as both kinds have it: the system's own, or that of the package `ws` where there is none (Node < 22). */
import { LEADER } from "./addresses.js";
import { LATER, problemOf } from "./answers.js";
import { ClientError, Refused, Unreachable } from "./errors.js";
import type { Transport } from "./transport.js";

const OPEN_S = 10;
/** the broker pings every 20 s; one that has not for so long is gone */
const SILENCE_S = 50;

export interface Socket {
  send(text: string): void;
  /** bytes handed over and not written yet */
  readonly bufferedAmount: number;
  close(): void;
  /** resolves once it is closed, however */
  readonly closed: Promise<void>;
}

interface Native {
  onopen: (() => void) | null;
  onmessage: ((event: { data: unknown }) => void) | null;
  onclose: (() => void) | null;
  onerror: (() => void) | null;
  readonly bufferedAmount: number;
  send(text: string): void;
  close(): void;
}

type NativeKind = new (url: string, options?: unknown) => Native;
type Taken = (frame: Record<string, any>) => void;

/**
 * Open one at `url`. Rejects with `Refused` where the broker says so, `Unreachable` where another address or a later
 * try may do. Which address is next is noted.
 */
export async function opened(transport: Transport, url: string, path: string, take: Taken): Promise<Socket> {
  try {
    const native = (globalThis as { WebSocket?: NativeKind }).WebSocket;
    const there = url.replace(/^http/, "ws") + path;
    const socket = native === undefined ? await ofPackage(transport, url, there, take) : await ofSystem(native, transport, there, take);
    transport.addresses.answered(url);
    return socket;
  } catch (error) {
    if (!(error instanceof Refused)) transport.addresses.failed(url);
    throw error;
  }
}

function ofSystem(kind: NativeKind, { token }: Transport, there: string, take: Taken): Promise<Socket> {
  const isNode = typeof process !== "undefined" && process.versions?.node !== undefined;
  if (token !== undefined && !isNode)
    throw new ClientError("a browser's WebSocket sends no token: pull instead, or let a server of yours relay it");
  return new Promise((resolve, reject) => {
    const socket =
      token === undefined ? new kind(there) : new kind(there, { headers: { Authorization: `Bearer ${token}` } });
    const timer = setTimeout(() => socket.close(), OPEN_S * 1000);
    let close = (): void => undefined;
    const closed = new Promise<void>((resolveClosed) => (close = resolveClosed));
    socket.onmessage = ({ data }) => take(JSON.parse(String(data)));
    socket.onerror = () => socket.onclose?.();
    socket.onclose = () => {
      clearTimeout(timer);
      close();
      reject(new Unreachable(`no WebSocket at ${there.split("?")[0]}: no connection, or it was refused`));
    };
    socket.onopen = () => {
      clearTimeout(timer);
      resolve({
        send: (text) => socket.send(text),
        get bufferedAmount() {
          return socket.bufferedAmount;
        },
        close: () => socket.close(),
        closed,
      });
    };
  });
}

async function ofPackage({ token, addresses }: Transport, url: string, there: string, take: Taken): Promise<Socket> {
  const { WebSocket } = await import("ws").catch(() => {
    throw new ClientError("this Node has no WebSocket: npm install ws, or take Node 22 or newer");
  });
  return new Promise((resolve, reject) => {
    const headers: Record<string, string> = token === undefined ? {} : { Authorization: `Bearer ${token}` };
    const options = { headers, handshakeTimeout: OPEN_S * 1000, perMessageDeflate: false, maxPayload: 0 };
    const socket = new WebSocket(there, options);
    let close = (): void => undefined;
    const closed = new Promise<void>((resolveClosed) => (close = resolveClosed));
    let timer: ReturnType<typeof setTimeout> | undefined;
    const heard = (): void => {
      clearTimeout(timer);
      timer = setTimeout(() => socket.terminate(), SILENCE_S * 1000);
    };
    socket.on("upgrade", (answer) => addresses.named(url, answer.headers[LEADER.toLowerCase()] as string | undefined));
    socket.on("message", (data) => {
      heard();
      take(JSON.parse(String(data)));
    });
    socket.on("ping", heard);
    socket.on("error", (error) => reject(new Unreachable(`no WebSocket at ${url}: ${error.message}`)));
    socket.on("close", () => {
      clearTimeout(timer);
      close();
      reject(new Unreachable(`no WebSocket at ${url}: the connection was closed`));
    });
    socket.on("unexpected-response", (request, answer) => {
      addresses.named(url, answer.headers[LEADER.toLowerCase()] as string | undefined);
      let written = "";
      answer.setEncoding("utf8");
      answer.on("data", (part: string) => (written += written.length < 65536 ? part : ""));
      answer.on("close", () => {
        const status = answer.statusCode ?? 0;
        const problem = problemOf(written);
        const detail = problem.detail ?? `it answered ${status}`;
        const isFinal = status >= 400 && status < 500 && !LATER.has(status);
        reject(isFinal ? new Refused(status, problem) : new Unreachable(`no WebSocket at ${url}: ${detail}`));
        request.destroy();
      });
    });
    socket.on("open", () => {
      heard();
      resolve({
        send: (text) => socket.send(text, () => undefined), // an error closes it
        get bufferedAmount() {
          return socket.bufferedAmount;
        },
        close: () => socket.close(),
        closed,
      });
    });
  });
}
