// The causal tree as a drawing: layers from left to right, each message right of all its parents.

import { h, svg } from "./dom.js";
import { tail } from "./format.js";

export const NODES_MAX = 300;

const WIDTH = 168;
const HEIGHT = 46;
const GAP_X = 58;
const GAP_Y = 14;
const MARGIN = 12;
const BEND = 6;
const BENDS_MAX = 600;
const IN_LAYER_MAX = 24;
const SWEEPS = 4;
const BAD = new Set(["dead", "expired", "dropped"]);

/** `nodes` as the tree route answers them; `centre` is the id of the message asked about; `critical` are those of its
 * critical path. */
export function drawTree(nodes, centre, critical = new Set()) {
  const layers = layered(connect(nodes));
  const hidden = shorten(layers, centre);
  const kept = layers.flat();
  const edges = routed(layers, kept);
  order(layers);
  const { width, height } = place(layers);
  const rest = hidden.map(({ x, y, count }) => svg("text", { class: "rest", x: x + WIDTH / 2, y: y + 18 }, `and ${count} more`));
  return h(
    "div",
    { class: "tree scroll", tabindex: "0", role: "region", "aria-label": "Causal tree", "data-centre": centre },
    svg(
      "svg",
      { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `${kept.length} messages, parents left of their children` },
      svg("defs", null, arrow("arrow", ""), arrow("arrow-shut", "shut"), arrow("arrow-broken", "broken")),
      edges.map((points) => edge(points, critical)),
      kept.map((node) => shape(node, centre)),
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
  const full = Array.from(layers).filter(Boolean);
  full.forEach((layer, at) => layer.forEach((node) => (node.layer = at)));
  return full;
}

/**
 * The edges between drawn nodes, each as the points it passes. Where one passes layers by, it gets a place of its own
 * in each of them, so that it runs between the nodes there and not behind them.
 */
function routed(layers, kept) {
  const drawn = new Set(kept);
  const edges = [];
  for (const node of kept) {
    for (const parent of node.above.filter((one) => drawn.has(one))) {
      const points = [parent];
      for (let layer = parent.layer + 1; layer < node.layer && edges.length < BENDS_MAX; layer += 1) {
        const bend = { bend: true, sequence: node.sequence };
        points.push(bend);
        layers[layer].push(bend);
      }
      edges.push([...points, node]);
    }
  }
  for (const points of edges) {
    for (let at = 1; at < points.length; at += 1) {
      (points[at - 1].next ??= []).push(points[at]);
      (points[at].last ??= []).push(points[at - 1]);
    }
  }
  return edges;
}

/** Each node near the middle of its neighbours, a few times to and fro: few edges cross then. */
function order(layers) {
  for (const layer of layers) layer.forEach((node, at) => (node.at = at - layer.length / 2));
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const right = sweep % 2 === 0;
    for (const layer of right ? layers : [...layers].reverse()) {
      const pull = (node) => {
        const near = (right ? node.last : node.next) ?? [];
        return near.length ? near.reduce((sum, other) => sum + other.at, 0) / near.length : node.at;
      };
      const pulls = new Map(layer.map((node) => [node, pull(node)]));
      layer.sort((one, other) => pulls.get(one) - pulls.get(other) || one.sequence - other.sequence);
      layer.forEach((node, at) => (node.at = at - layer.length / 2));
    }
  }
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
  const tallness = (layer) => layer.reduce((sum, node) => sum + (node.bend ? BEND : HEIGHT) + GAP_Y, 0) - GAP_Y + (layer.hidden ? HEIGHT : 0);
  const height = Math.max(...layers.map(tallness)) + 2 * MARGIN;
  layers.forEach((layer, column) => {
    const x = MARGIN + column * (WIDTH + GAP_X);
    let y = (height - tallness(layer)) / 2;
    for (const node of layer) {
      Object.assign(node, { x, y });
      y += (node.bend ? BEND : HEIGHT) + GAP_Y;
    }
    if (layer.hidden) Object.assign(layer.hidden, { x, y });
  });
  return { width: layers.length * (WIDTH + GAP_X) - GAP_X + 2 * MARGIN, height };
}

function edge(points, critical) {
  const [parent, child] = [points[0], points.at(-1)];
  const kind = parent.state === "complete" || parent.state === "gone" ? "" : BAD.has(parent.state) ? "broken" : "shut";
  let path = `M${parent.x + WIDTH} ${parent.y + HEIGHT / 2}`;
  let from = [parent.x + WIDTH, parent.y + HEIGHT / 2];
  for (const point of points.slice(1)) {
    const to = point.bend ? [point.x, point.y + BEND / 2] : [point.x - 2, point.y + HEIGHT / 2];
    const lean = Math.max(20, (to[0] - from[0]) / 2);
    path += ` C${from[0] + lean} ${from[1]} ${to[0] - lean} ${to[1]} ${to[0]} ${to[1]}`;
    if (point.bend) path += ` L${point.x + WIDTH} ${to[1]}`;
    from = point.bend ? [point.x + WIDTH, to[1]] : to;
  }
  return svg("path", { class: `edge ${kind} ${critical.has(parent.id) && critical.has(child.id) ? "critical" : ""}`, d: path, "marker-end": `url(#arrow${kind && `-${kind}`})` });
}

function arrow(id, kind) {
  return svg("marker", { id, class: `arrow ${kind}`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 11, markerHeight: 11, markerUnits: "userSpaceOnUse", orient: "auto" }, svg("path", { d: "M0 0 L8 4 L0 8 z" }));
}

function shape(node, centre) {
  const here = node.id === centre;
  const name = Array.from(node.queue); // by character: half of one that takes two units is none
  const queue = name.length > 16 ? `${name.slice(0, 15).join("")}…` : node.queue;
  return svg(
    "a",
    { href: `#/messages/${node.id}`, class: `node is-${node.state} ${here ? "here" : ""}`, "data-key": node.id, "aria-label": `${node.state} message ${node.id} in queue ${node.queue}`, "aria-current": here ? "true" : null },
    svg("rect", { class: "box", x: node.x, y: node.y, width: WIDTH, height: HEIGHT, rx: 8 }),
    svg("rect", { class: "bar", x: node.x, y: node.y, width: 6, height: HEIGHT, rx: 3 }),
    svg("text", { class: "name", x: node.x + 16, y: node.y + 20 }, queue || (node.state === "gone" ? "gone" : "another queue")),
    svg("text", { class: "state", x: node.x + WIDTH - 10, y: node.y + 20 }, node.state),
    svg("text", { class: "tail", x: node.x + 16, y: node.y + 37 }, tail(node.id)),
  );
}
