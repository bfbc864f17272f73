// Serve the POST of a route module, as Next does: `node serve_route.mjs MODULE --port N`.
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const [module, , port] = process.argv.slice(2);
const { POST } = await import(pathToFileURL(module));

createServer(async (request, response) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  const { method, headers } = request;
  const answer = await POST(new Request(`http://127.0.0.1:${port}/`, { method, headers, body: Buffer.concat(parts) }));
  response.writeHead(answer.status).end();
}).listen(Number(port), "127.0.0.1", () => console.log("listening"));
