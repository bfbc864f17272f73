// Webhooks verified in a route of Next: save it as app/webhook/route.js. Needs the client, `npm install
// .../syncbrok-*.tgz`; clients/typescript/README.md says how.
//
// export WEBHOOK_SECRET=whsec_...             the subscriber's secret, as the broker was given it
//
// It uses nothing of Next but what a route is: a function of a Request that returns a Response. So it serves Remix,
// Hono, Deno and the like too.

import { BadSignature, checkSecret, verify } from "syncbrok";

export const dynamic = "force-dynamic";

export async function POST(request) {
  // Looked at here: Next loads a route while it builds, where there is no secret yet.
  const secret = checkSecret(process.env.WEBHOOK_SECRET);
  const body = new Uint8Array(await request.arrayBuffer()); // as it came: parsed JSON written anew is other bytes
  let id;
  try {
    id = await verify(body, request.headers, secret);
  } catch (forged) {
    if (!(forged instanceof BadSignature)) throw forged;
    console.log(`forged   ${forged.message}`);
    return new Response(null, { status: 401 });
  }
  console.log(`genuine  ${id}  ${JSON.stringify(new TextDecoder().decode(body.subarray(0, 60)))}`);
  return new Response(null, { status: 204 }); // any 2xx acknowledges
}
