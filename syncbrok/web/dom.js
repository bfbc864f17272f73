// Building and updating the page. Text always goes in as text: nothing here, or anywhere in these files, parses HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

/** An HTML element with attributes and children; strings become text. */
export function h(name, properties, ...children) {
  return fill(document.createElement(name), properties, children);
}

/** An SVG element, as `h`. */
export function svg(name, properties, ...children) {
  return fill(document.createElementNS(SVG, name), properties, children);
}

/**
 * Make `target`'s children equal to `source`'s, changing as little as possible: focus, scrolling, selection and open
 * details stay. Children with `data-key` keep their identity when they move. What reacts to the reader is bound to the
 * document by `data-do`, so elements may be kept or replaced freely.
 */
export function morph(target, source) {
  const keyed = new Map();
  for (const child of target.children) if (child.dataset?.key) keyed.set(child.dataset.key, child);
  let at = target.firstChild;
  for (const wanted of [...source.childNodes]) {
    const key = wanted.dataset?.key;
    let have = key ? keyed.get(key) ?? null : at;
    if (have && !key && have.dataset?.key) have = null;
    if (have && have.nodeName === wanted.nodeName && have.nodeType === wanted.nodeType) {
      if (have !== at) target.insertBefore(have, at);
      update(have, wanted);
      at = have.nextSibling;
    } else {
      target.insertBefore(wanted, at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function update(have, wanted) {
  if (have.nodeType !== Node.ELEMENT_NODE) {
    if (have.nodeValue !== wanted.nodeValue) have.nodeValue = wanted.nodeValue;
    return;
  }
  for (const { name } of [...have.attributes]) {
    // Whether details are open is the reader's business.
    if (!wanted.hasAttribute(name) && !(name === "open" && have.nodeName === "DETAILS")) have.removeAttribute(name);
  }
  for (const { name, value } of [...wanted.attributes]) {
    if (have.getAttribute(name) !== value) have.setAttribute(name, value);
  }
  if (have.hasAttribute("data-list")) have.checked = wanted.hasAttribute("checked"); // else its own last click counts
  if (have.hasAttribute("data-keep")) return;
  morph(have, wanted);
}
