/**
 * The addresses of a broker, or of the nodes of a cluster, and which of them is asked next.
 *
 * An answer may name the node that leads (`Syncbrok-Leader`). Whoever goes there takes token and content along, so a
 * name is followed only to an address that was given; or, where a given address has named it over TLS, to https; or,
 * where a given one on loopback has named it, to loopback or https. The Python client has the same rule.
 */
export const LEADER = "Syncbrok-Leader";
const AVOID_S = 5;
const AVOID_MAX_S = 300;
const AVOIDED_MAX = 64;

interface Origin {
  text: string;
  https: boolean;
  loopback: boolean;
}

export class BrokerAddresses {
  readonly given: readonly string[];
  /** which is asked first */
  current: string;
  private readonly byOrigin = new Map<string, string>();
  private readonly avoided = new Map<string, { until: number; pause: number }>();

  /** `urls`: one, or several in one text with commas between, or each by itself. Throws `TypeError` for none. */
  constructor(
    urls: string | readonly string[],
    private readonly clock: () => number = () => performance.now() / 1000,
  ) {
    const list = typeof urls === "string" ? urls.split(",") : urls;
    this.given = [...new Set(list.map((url) => url.trim().replace(/\/+$/, "")))];
    for (const url of this.given) {
      const origin = originOf(url);
      if (origin === null) throw new TypeError(`expected a URL such as http://127.0.0.1:10000, found ${JSON.stringify(url)}`);
      if (!this.byOrigin.has(origin.text)) this.byOrigin.set(origin.text, url);
    }
    const first = this.given[0];
    if (first === undefined) throw new TypeError("expected the URL of a broker, such as http://127.0.0.1:10000; found none");
    this.current = first;
  }

  toString(): string {
    return this.given.join(", ");
  }

  /** How many there are to ask now. */
  get known(): number {
    return this.given.length + (this.given.includes(this.current) ? 0 : 1);
  }

  /** Which to ask after those; undefined where each of them was tried. */
  next(tried: ReadonlySet<string> = new Set()): string | undefined {
    if (!tried.has(this.current)) return this.current;
    const rest = this.others(this.current).filter((url) => !tried.has(url));
    return rest.find((url) => !this.isAvoided(url)) ?? rest[0];
  }

  /** An answer from the URL `by` had this header: from now on that node is asked first, if it may be followed. */
  named(by: string, leader: string | null | undefined): void {
    const origin = originOf(leader ?? "");
    const speaker = originOf(by);
    if (!leader || origin === null || speaker === null) return;
    let url = this.byOrigin.get(origin.text);
    if (url === undefined && this.byOrigin.has(speaker.text) && mayLead(speaker, origin)) url = leader.replace(/\/+$/, "");
    if (url !== undefined && !this.isAvoided(url)) this.current = url;
  }

  /** The broker at `url` did what it was asked: it is avoided no more. */
  answered(url: string): void {
    this.avoided.delete(url);
    if (this.isAvoided(this.current)) this.current = url;
  }

  /** The broker at `url` refused the connection, was silent or sent us away: another is asked first. */
  failed(url: string): void {
    const pause = Math.min(2 * (this.avoided.get(url)?.pause ?? AVOID_S / 2), AVOID_MAX_S);
    this.avoided.delete(url);
    this.avoided.set(url, { until: this.clock() + pause, pause });
    if (this.avoided.size > AVOIDED_MAX) this.avoided.delete(this.avoided.keys().next().value as string);
    if (this.current === url) {
      const others = this.others(url);
      this.current = others.find((one) => !this.isAvoided(one)) ?? others[0] ?? url;
    }
  }

  /** The other addresses that were given, in their order, from the one behind `url` on. */
  private others(url: string): string[] {
    const at = this.given.indexOf(url) + 1;
    return [...this.given.slice(at), ...this.given.slice(0, at)].filter((one) => one !== url);
  }

  private isAvoided(url: string): boolean {
    return (this.avoided.get(url)?.until ?? 0) > this.clock();
  }
}

function mayLead(by: Origin, leader: Origin): boolean {
  if (by.https) return leader.https;
  return by.loopback && (leader.loopback || leader.https);
}

/** null for what is no URL of a broker: one with a user, a query or a fragment neither. */
function originOf(url: string): Origin | null {
  if (!/^https?:\/\/[\x21-\x7e]+$/i.test(url) || /[@?#\\]/.test(url)) return null;
  let parts: URL;
  try {
    parts = new URL(url);
  } catch {
    return null;
  }
  const host = parts.hostname;
  return {
    text: parts.origin,
    https: parts.protocol === "https:",
    loopback: host === "localhost" || host === "[::1]" || /^127(\.\d+){3}$/.test(host),
  };
}
