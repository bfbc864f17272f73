#!/usr/bin/env node
// Webhooks verified before each handler of Express. Needs a copy of this file in a folder of yours, and there the client
// (clients/typescript/README.md says how) and Express:
//
// npm install .../syncbrok-*.tgz express
// export WEBHOOK_SECRET=whsec_...             the subscriber's secret, as the broker was given it
// node receive_express.mjs                    listen on http://127.0.0.1:20000/

import express from "express";
import { BadSignature, checkSecret, verify } from "syncbrok";

let secret;
try {
  secret = checkSecret(process.env.WEBHOOK_SECRET);
} catch (wrong) {
  console.error(`WEBHOOK_SECRET: ${wrong.message}; give it the subscriber's secret`);
  process.exit(1);
}

const app = express();

// The body as it came: parsed JSON written anew would be other bytes.
app.use(express.raw({ type: () => true, limit: "1mb", inflate: false }));

// 401 for whatever the broker has not signed; the body stays readable for the handler.
app.use(async (request, response, next) => {
  request.body = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
  try {
    response.locals.webhookId = await verify(request.body, request.headers, secret);
  } catch (forged) {
    if (!(forged instanceof BadSignature)) throw forged;
    console.log(`forged   ${forged.message}`);
    response.sendStatus(401);
    return;
  }
  next();
});

// Acknowledged by any 2xx.
app.post("/", (request, response) => {
  console.log(`genuine  ${response.locals.webhookId}  ${JSON.stringify(request.body.toString().slice(0, 60))}`);
  response.sendStatus(204);
});

const at = process.argv.indexOf("--port");
const port = at < 0 ? 20_000 : Number(process.argv[at + 1]);
app.listen(port, "127.0.0.1", () => console.log("listening"));
