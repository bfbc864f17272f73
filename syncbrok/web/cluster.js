// A cluster, where the broker is a node of one: who leads, how far each node is, how the engine's servers run, and in
// words what is wrong with any of that.

import { get } from "./api.js";
import { h } from "./dom.js";
import { duration, number, pill, tableOf } from "./format.js";

const LAG_S = 5;
/** Problems of a node that follows nobody, or cannot tell whether it leads: it still answers for the cluster. */
export const LEADERLESS = new Set(["no-leader", "no-quorum"]);

/** By name what was seen of each node since this page was opened: when it was heard, and since when it is behind. */
const known = new Map();

/** The cluster as the node that answers knows it. */
export async function loadCluster(signal) {
  const found = await get("/v1/cluster", signal);
  const at = performance.now();
  const newest = Math.max(0, ...found.nodes.map((node) => node.sequence));
  for (const node of found.nodes) watch(node, newest, at);
  found.gone = [...known].filter(([name]) => !found.nodes.some((node) => node.node === name)).map(([name, { heard }]) => ({ node: name, seconds: (at - heard) / 1_000 }));
  return found;
}

/** A node that writes what others have written before it is always some records behind: what counts is for how long. */
function watch(node, newest, at) {
  const last = known.get(node.node);
  const level = !last?.target || node.sequence >= last.target;
  const target = node.sequence < newest ? (level ? newest : last.target) : 0;
  const since = target && !level ? last.since : at;
  known.set(node.node, { heard: at, target, since });
  node.behind_s = (at - since) / 1_000;
}

/** What an operator has to know, a sentence each; none while all is well. */
function troubles(cluster) {
  const down = cluster.engine.filter((server) => !server.alive);
  return [
    !cluster.leader && "Nobody leads: publishes wait or are refused, and nothing is delivered.",
    2 * down.length > cluster.engine.length && "The engine has lost its majority: nobody can lead until it is back.",
    ...down.map((server) => `The engine's server ${server.url} does not answer: start it.`),
    ...cluster.engine.filter((server) => server.alive && !server.sync_always).map((server) => `The engine's server ${server.url} does not fsync each message (sync_always is false): a power failure would lose what was answered.`),
    ...cluster.nodes.filter((node) => node.role === "stalled").map((node) => `Node ${node.node} has stopped following: its disk is full. It goes on by itself once there is room.`),
    new Set(cluster.nodes.map((node) => node.archive).filter(Boolean)).size > 1 && `Nodes differ in storage.archive (${cluster.nodes.map((node) => `${node.node}: ${node.archive}`).join(", ")}): whoever leads drops segments by its own.`,
    ...cluster.nodes.filter((node) => node.role !== "stalled" && node.behind_s > LAG_S).map((node) => `Node ${node.node} has been behind for ${duration(node.behind_s)}, by ${number(node.lag_records)} records now: look at its disk, and at its way to the engine.`),
    ...cluster.gone.map((one) => `Node ${one.node} has not been heard for ${duration(one.seconds)}: if it does not come back, look at its last log line.`),
    cluster.nodes.length + cluster.gone.length === 1 && "No other node is heard: if this one is lost, nobody takes over.",
  ].filter(Boolean);
}

export function clusterSection(cluster) {
  const wrong = troubles(cluster);
  return h(
    "section",
    { class: "card cluster", "data-key": "cluster" },
    h("h2", null, "Cluster"),
    h("p", { class: "facts" }, h("span", null, "space ", h("b", null, cluster.space)), h("span", null, cluster.leader ? [h("b", null, cluster.leader.node), " leads"] : h("b", { class: "bad" }, "nobody leads")), h("span", null, "epoch ", h("b", null, String(cluster.epoch)))),
    wrong.length > 0 && h("ul", { class: "notice bad", role: "alert" }, wrong.map((text) => h("li", null, text))),
    tableOf("Nodes", NODES, nodeRows(cluster), "No node was heard lately."),
    tableOf("Servers of the engine", SERVERS, serverRows(cluster), "Nothing is known yet of the engine's servers."),
  );
}

const NODES = [{ name: "Node" }, { name: "Role" }, { name: "Lag, records", figure: true }, { name: "Last record", figure: true }, { name: "Process", figure: true }, { name: "Address" }];
const SERVERS = [{ name: "Engine" }, { name: "Alive" }, { name: "Fsyncs each message" }];

function nodeRows(cluster) {
  const heard = cluster.nodes.map((node) => ({
    key: `node ${node.node}`,
    cells: [h("strong", null, node.node), pill(node.role), number(node.lag_records), number(node.sequence), String(node.pid), node.url],
  }));
  const gone = cluster.gone.map((one) => ({ key: `node ${one.node}`, cells: [h("strong", null, one.node), pill("gone"), "–", "–", "–", "–"] }));
  return [...heard, ...gone];
}

function serverRows(cluster) {
  const yes = (value) => (value ? "yes" : h("span", { class: "bad" }, "no"));
  return cluster.engine.map((server) => ({ key: `server ${server.url}`, cells: [server.url, yes(server.alive), server.alive ? yes(server.sync_always) : "–"] }));
}
