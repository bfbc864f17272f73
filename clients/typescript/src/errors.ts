/** An RFC 9457 document, as the broker answers what it does not do. `type` never changes; `detail` is for people. */
export interface Problem {
  type?: string;
  title?: string;
  status?: number;
  detail?: string;
  /** what to do about it */
  mend?: string;
  /** of a batch: the line that is wrong */
  line?: number;
  errors?: { line: number; detail: string }[];
  [member: string]: unknown;
}

/** The root of the tree. `message` says what happened and what to do about it. */
export class ClientError extends Error {
  override name = "ClientError";
}

/** The broker has answered no: the request is wrong, and nothing has changed. */
export class Refused extends ClientError {
  override name = "Refused";
  constructor(
    readonly status: number,
    readonly problem: Problem,
  ) {
    const detail = problem.detail || problem.title || "no reason was given";
    super(`${status}: ${detail}${problem.mend ? ` (${problem.mend})` : ""}`);
  }

  /** The word by which programs know the problem, such as `unknown-queue`; empty where it is none of a broker's. */
  get slug(): string {
    return slugOf(this.problem);
  }
}

/** No answer, or none but "later", for as long as was tried. With idempotent publishing it is safe to repeat. */
export class Unreachable extends ClientError {
  override name = "Unreachable";
}

/** The request was not signed with the secret, or is too old. Answer 401 and do nothing. */
export class BadSignature extends ClientError {
  override name = "BadSignature";
}

export function slugOf(problem: Problem): string {
  const type = typeof problem.type === "string" ? problem.type : "";
  return type.slice(type.lastIndexOf(":") + 1);
}

export function told(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const cause = error.cause instanceof Error ? `: ${error.cause.message || (error.cause as { code?: string }).code}` : "";
  return `${error.name}: ${error.message}${cause}`;
}
