// The causal tree as a drawing: layers from left to right, each message right of all its parents.

import { h, svg } from "./dom.js";
import { tail } from "./format.js";

export const NODES_MAX = 300;

const WIDTH = 168;
const HEIGHT = 46;
const GAP_X = 58;
const GAP_Y = 14;
const MARGIN = 12;
const IN_LAYER_MAX = 24;
const SWEEPS = 4;
const BAD = new Set(["dead", "expired", "dropped"]);

/** `nodes` as the tree route answers them; `centre` is the id of the message asked about. */
export function drawTree(nodes, centre) {
  const graph = connect(nodes);
  const layers = order(layered(graph), graph);
  const hidden = shorten(layers, centre);
  const { width, height } = place(layers);
  const shownNodes = layers.flat();
  const drawn = new Set(shownNodes);
  const edges = shownNodes.flatMap((node) => node.above.filter((parent) => drawn.has(parent)).map((parent) => edge(parent, node)));
  const list = shownNodes.map((node) => shape(node, centre));
  const rest = hidden.map(({ x, y, count }) => svg("text", { class: "rest", x: x + WIDTH / 2, y: y + 18 }, `and ${count} more`));
  return h(
    "div",
    { class: "tree scroll", tabindex: "0", role: "region", "aria-label": "Causal tree", "data-centre": centre },
    svg(
      "svg",
      { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `${shownNodes.length} messages, parents left of their children` },
      svg("defs", null, arrow("arrow", ""), arrow("arrow-shut", "shut"), arrow("arrow-broken", "broken")),
      edges,
      list,
      rest,
    ),
  );
}

function connect(nodes) {
  const byId = new Map(nodes.map((node) => [node.id, { ...node, above: [], below: [], layer: 0 }]));
  for (const node of byId.values()) {
    for (const id of node.parents) {
      const parent = byId.get(id);
      if (!parent) continue;
      node.above.push(parent);
      parent.below.push(node);
    }
  }
  return [...byId.values()].sort((one, other) => one.sequence - other.sequence);
}

/** Sequences rise along every edge, so one pass suffices; a second draws what has no parents near to its children. */
function layered(graph) {
  for (const node of graph) node.layer = Math.max(0, ...node.above.map((parent) => parent.layer + 1));
  for (const node of [...graph].reverse()) {
    if (!node.above.length && node.below.length) node.layer = Math.min(...node.below.map((child) => child.layer)) - 1;
  }
  const layers = [];
  for (const node of graph) (layers[node.layer] ??= []).push(node);
  return layers.filter(Boolean);
}

/** Each node near the middle of its neighbours, a few times to and fro: few edges cross then. */
function order(layers) {
  const number = () => layers.forEach((layer) => layer.forEach((node, at) => (node.at = at - layer.length / 2)));
  number();
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const down = sweep % 2 === 0;
    for (const layer of down ? layers : [...layers].reverse()) {
      const pull = (node) => {
        const near = down ? node.above : node.below;
        return near.length ? near.reduce((sum, other) => sum + other.at, 0) / near.length : node.at;
      };
      const pulls = new Map(layer.map((node) => [node, pull(node)]));
      layer.sort((one, other) => pulls.get(one) - pulls.get(other) || one.sequence - other.sequence);
      layer.forEach((node, at) => (node.at = at - layer.length / 2));
    }
  }
  return layers;
}

/** Of a very tall layer the nodes around the middle; where the others were, and how many. */
function shorten(layers, centre) {
  const hidden = [];
  layers.forEach((layer, at) => {
    if (layer.length <= IN_LAYER_MAX) return;
    const kept = layer.slice(0, IN_LAYER_MAX - 1);
    const middle = layer.find((node) => node.id === centre);
    if (middle && !kept.includes(middle)) kept[kept.length - 1] = middle;
    hidden.push({ layer: at, count: layer.length - kept.length, x: 0, y: 0 });
    layers[at] = kept;
    layers[at].hidden = hidden.at(-1);
  });
  return hidden;
}

function place(layers) {
  const rows = Math.max(...layers.map((layer) => layer.length + (layer.hidden ? 1 : 0)));
  const height = rows * (HEIGHT + GAP_Y) - GAP_Y + 2 * MARGIN;
  layers.forEach((layer, column) => {
    const x = MARGIN + column * (WIDTH + GAP_X);
    const count = layer.length + (layer.hidden ? 1 : 0);
    const top = (height - (count * (HEIGHT + GAP_Y) - GAP_Y)) / 2;
    layer.forEach((node, row) => Object.assign(node, { x, y: top + row * (HEIGHT + GAP_Y) }));
    if (layer.hidden) Object.assign(layer.hidden, { x, y: top + layer.length * (HEIGHT + GAP_Y) });
  });
  return { width: layers.length * (WIDTH + GAP_X) - GAP_X + 2 * MARGIN, height };
}

function edge(parent, child) {
  const [x1, y1, x2, y2] = [parent.x + WIDTH, parent.y + HEIGHT / 2, child.x - 2, child.y + HEIGHT / 2];
  const bend = Math.max(24, (x2 - x1) / 2);
  const kind = parent.state === "complete" || parent.state === "gone" ? "" : BAD.has(parent.state) ? "broken" : "shut";
  return svg("path", { class: `edge ${kind}`, d: `M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`, "marker-end": `url(#arrow${kind && `-${kind}`})` });
}

function arrow(id, kind) {
  return svg("marker", { id, class: `arrow ${kind}`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, svg("path", { d: "M0 0 L8 4 L0 8 z" }));
}

function shape(node, centre) {
  const here = node.id === centre;
  const queue = node.queue.length > 16 ? `${node.queue.slice(0, 15)}…` : node.queue;
  return svg(
    "a",
    { href: `#/messages/${node.id}`, class: `node is-${node.state} ${here ? "here" : ""}`, "data-key": node.id, "aria-label": `${node.state} message ${node.id} in queue ${node.queue}`, "aria-current": here ? "true" : null },
    svg("rect", { class: "box", x: node.x, y: node.y, width: WIDTH, height: HEIGHT, rx: 8 }),
    svg("rect", { class: "bar", x: node.x, y: node.y, width: 6, height: HEIGHT, rx: 3 }),
    svg("text", { class: "name", x: node.x + 16, y: node.y + 20 }, queue || "gone"),
    svg("text", { class: "state", x: node.x + WIDTH - 10, y: node.y + 20 }, node.state),
    svg("text", { class: "tail", x: node.x + 16, y: node.y + 37 }, tail(node.id)),
  );
}
