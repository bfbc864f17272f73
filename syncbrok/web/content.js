// A content as people read it: JSON with its lines set anew, text as it is, other bytes in hexadecimal.

const HEX_BYTES = 65_536;
const OPENS = "{[";
const SHUTS = "}]";

/** `{kind, text}`: how the bytes are shown, and as what. */
export function readable(bytes) {
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return { kind: "binary", text: hex(bytes) };
  }
  if (/[\0-\x08\x0b\x0e-\x1f]/.test(text)) return { kind: "binary", text: hex(bytes) };
  try {
    JSON.parse(text);
  } catch {
    return { kind: "text", text };
  }
  return { kind: "JSON", text: indented(text) };
}

/** JSON of any size with its lines set anew. Every token stays as it was written: a number of 20 digits keeps them. */
export function indented(text) {
  const out = [];
  let depth = 0;
  let open = false;
  const line = () => `\n${"  ".repeat(depth)}`;
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/gs)) {
    if (SHUTS.includes(token)) {
      depth -= 1;
      out.push(open ? token : line() + token);
      open = false;
      continue;
    }
    if (open) out.push(line());
    open = OPENS.includes(token);
    depth += open;
    out.push(token === "," ? `,${line()}` : token === ":" ? ": " : token);
  }
  return out.join("");
}

/** Bytes as a table of offset, hexadecimal and letters. */
export function hex(bytes) {
  const lines = [];
  for (let at = 0; at < Math.min(bytes.length, HEX_BYTES); at += 16) {
    const row = [...bytes.subarray(at, at + 16)];
    const digits = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${digits.padEnd(47)}  ${letters}`);
  }
  if (bytes.length > HEX_BYTES) lines.push(`… and ${bytes.length - HEX_BYTES} bytes more: download it to see them`);
  return lines.join("\n");
}

/** Put a text on the reader's clipboard, also where the page came without TLS. */
export async function copy(text) {
  if (navigator.clipboard && isSecureContext) return navigator.clipboard.writeText(text);
  const holder = document.createElement("textarea");
  holder.value = text;
  holder.setAttribute("class", "hidden");
  const at = document.querySelector("dialog[open]") ?? document.body;
  at.append(holder);
  holder.select();
  document.execCommand("copy");
  holder.remove();
  return undefined;
}

/** Let the reader keep bytes as a file. */
export function download(name, bytes) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([bytes], { type: "application/octet-stream" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
