// The description of the API as a page to read: drawn from openapi.json, which stands beside this page.

import { h } from "./dom.js";

const main = document.getElementById("main");
const contents = document.getElementById("contents");
const narrow = document.getElementById("narrow");
let schemas = {};

const last = (reference) => reference.split("/").at(-1);

/** A sentence of the description: what stands in backticks is code. */
function prose(text) {
  return (text ?? "").split("`").map((part, at) => (at % 2 ? h("code", null, part) : part));
}

/** What a value is, in a few words. */
function kind(schema) {
  if (schema.$ref) return last(schema.$ref);
  const choices = schema.anyOf ?? schema.oneOf?.filter((one) => one.type || one.$ref);
  if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(" | ");
  if (choices?.length) return [...new Set(choices.map(kind))].join(" | ");
  if (schema.type === "array") return `list of ${kind(schema.items ?? {})}`;
  if (schema.type === "object" && !schema.properties && schema.additionalProperties?.type) return `object of ${kind(schema.additionalProperties)}`;
  const format = schema.format ?? schema.contentEncoding;
  return (schema.type ?? "any") + (format ? ` (${format})` : "");
}

const BOUNDS = { minimum: "at least #", maximum: "at most #", maxLength: "at most # characters", maxItems: "at most # of them" };

function bounds(schema) {
  const found = Object.entries(BOUNDS).flatMap(([name, words]) => (name in schema ? [words.replace("#", schema[name])] : []));
  if ("default" in schema) found.push(`default: ${JSON.stringify(schema.default)}`);
  if (schema.examples) found.push(`such as ${schema.examples.map((one) => JSON.stringify(one)).join(", ")}`);
  return found.length ? h("span", { class: "kind" }, ` ${found.join("; ")}`) : null;
}

function field(name, schema, required, doc) {
  return h("div", null, h("code", null, name), " ", h("span", { class: "kind" }, kind(schema)), required && h("b", null, " required"), " ", prose(doc ?? schema.description), bounds(schema), inner(schema));
}

/** The members of what stands in a value, drawn when they are asked for: a schema may stand in itself. */
function inner(schema) {
  const found = [];
  collect(schema, found);
  return found.map((one) => {
    const name = one.$ref ? last(one.$ref) : "its members";
    const details = h("details", null, h("summary", null, name));
    details.addEventListener("toggle", () => details.open && details.childElementCount === 1 && details.append(members(one.$ref ? schemas[name] : one)), { once: true });
    return details;
  });
}

function collect(schema, found) {
  if (schema.$ref || schema.properties) found.push(schema);
  for (const one of [...(schema.anyOf ?? []), ...(schema.items ? [schema.items] : [])]) collect(one, found);
  if (typeof schema.additionalProperties === "object") collect(schema.additionalProperties, found);
}

function members(schema) {
  const required = new Set(schema.required ?? []);
  const rows = Object.entries(schema.properties ?? {}).map(([name, one]) => field(name, one, required.has(name)));
  return h("div", { class: "fields" }, schema.description && h("div", { class: "quiet" }, prose(schema.description)), rows, rows.length ? null : inner(schema));
}

/** What a body or an answer holds; the members of one schema stand there at once. */
function held(content, open) {
  return Object.entries(content ?? {}).map(([media, { schema = {} }]) => h("div", null, h("code", null, media), " ", h("span", { class: "kind" }, kind(schema)), open && schema.$ref ? members(schemas[last(schema.$ref)]) : inner(schema)));
}

function parameters(operation) {
  const rows = (operation.parameters ?? []).map((one) => field(one.name, one.schema, one.required, [`in ${one.in}. `, one.description ?? one.schema.description ?? ""].join("")));
  return rows.length ? [h("h4", null, "Parameters"), h("div", { class: "fields" }, rows)] : null;
}

function body(operation) {
  const given = operation.requestBody;
  if (!given) return null;
  return [h("h4", null, given.required ? "Body" : "Body, which may be left out"), h("p", null, prose(given.description)), h("div", { class: "fields" }, held(given.content, true)), given["x-also-takes"] && [h("h4", null, "Also taken"), h("div", { class: "fields" }, held(given["x-also-takes"]))]];
}

function answers(operation) {
  const rows = Object.entries(operation.responses).map(([status, reply]) => [h("code", null, status), h("div", null, prose(reply.description), status < "400" ? held(reply.content) : null)]);
  const refusal = Object.entries(operation.responses).find(([status]) => status >= "400")?.[1];
  const [good, bad] = [rows.filter(([code]) => code.textContent < "400"), rows.filter(([code]) => code.textContent >= "400")];
  return [h("h4", null, "Answers"), h("div", { class: "answers" }, good), h("details", null, h("summary", null, `Refusals: ${bad.map(([code]) => code.textContent).join(", ")}`), h("div", { class: "answers" }, bad), h("div", { class: "fields" }, held(refusal?.content)))];
}

/** A command to begin with; braces are for the reader to fill in. */
function curl(method, path, operation) {
  const base = new URL(".", location.href).href.replace(/\/$/, "");
  const words = ["curl", method === "get" ? "" : `-X ${method.toUpperCase()} `].join(" ");
  const media = Object.keys(operation.requestBody?.content ?? {})[0];
  const sent = media ? ` -H 'Content-Type: ${media}' --data-binary @FILE` : "";
  const token = operation.security?.some((one) => one.token) ? ' -H "Authorization: Bearer $SYNCBROK_TOKEN"' : "";
  return h("details", null, h("summary", null, "curl"), h("pre", { tabindex: 0 }, `${words}'${base}${path}'${token}${sent}`));
}

function drawn(method, path, operation) {
  const scopes = (operation.security ?? []).flatMap((one) => one.token ?? []);
  return h("section", { class: "card operation", id: operation.operationId, "aria-labelledby": `${operation.operationId}-title` }, h("h3", { id: `${operation.operationId}-title` }, operation.summary), h("p", { class: "address" }, h("span", { class: `method of-${method}` }, method.toUpperCase()), path), h("p", { class: "quiet" }, h("code", null, operation.operationId), scopes.length ? `, with a token: scope ${scopes.join(" or ")}` : ", open to everybody"), parameters(operation), body(operation), answers(operation), curl(method, path, operation));
}

function draw(description) {
  schemas = description.components.schemas;
  const groups = new Map();
  for (const [path, methods] of Object.entries(description.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const tag = operation.tags[0];
      groups.set(tag, [...(groups.get(tag) ?? []), { method, path, operation }]);
    }
  }
  const sections = [...groups].map(([tag, rows]) => h("div", { class: "page", "data-group": tag }, h("h2", null, tag), rows.map(({ method, path, operation }) => drawn(method, path, operation))));
  main.replaceChildren(h("div", { class: "page" }, h("div", null, h("h1", null, "The HTTP interface"), h("p", { class: "quiet" }, `Syncbrok ${description.info.version}. `, prose(description.info.description))), sections));
  contents.replaceChildren(...[...groups].map(([tag, rows]) => h("div", { "data-group": tag }, h("h2", null, tag), rows.map(({ method, path, operation }) => h("a", { href: `#${operation.operationId}`, "data-for": operation.operationId, title: `${method.toUpperCase()} ${path}` }, operation.summary)))));
  const words = new Map([...groups.values()].flat().map(({ method, path, operation }) => [operation.operationId, `${method} ${path} ${operation.operationId} ${operation.summary}`.toLowerCase()]));
  const narrowed = () => filter(words);
  narrow.addEventListener("input", narrowed);
  narrowed();
  // The browser looked for the place before there was one.
  document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

/** Show only what has each word that was typed. */
function filter(words) {
  const asked = narrow.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const [id, text] of words) {
    const is = asked.every((word) => text.includes(word));
    document.getElementById(id).hidden = !is;
    contents.querySelector(`[data-for="${id}"]`).hidden = !is;
  }
  for (const group of document.querySelectorAll("[data-group]")) group.hidden = !group.querySelector(".operation:not([hidden]), a:not([hidden])");
}

try {
  const response = await fetch("openapi.json");
  if (!response.ok) throw new Error(`openapi.json was answered ${response.status}`);
  draw(await response.json());
} catch (error) {
  main.replaceChildren(h("p", { class: "notice bad", role: "alert" }, `The description cannot be shown: ${error.message}. Load the page again once the broker answers.`));
}
