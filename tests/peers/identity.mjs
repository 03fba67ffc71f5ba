// An identity provider whose tokens a test orders, one line of JSON each: the issuer comes first, then a token per line.
import { createInterface } from "node:readline";
import { OAuth2Server } from "oauth2-mock-server";

const server = new OAuth2Server();
await server.start(0, "127.0.0.1");
console.log(server.issuer.url);

for await (const line of createInterface({ input: process.stdin })) {
    const { kid, generate, expires_in = 3600, header = {}, payload = {} } = JSON.parse(line);
    if (generate) await server.issuer.keys.generate(generate, { kid });
    const scopesOrTransform = (itsHeader, itsPayload) => {
        Object.assign(itsHeader, header);
        Object.assign(itsPayload, payload);
    };
    console.log(await server.issuer.buildToken({ kid, expiresIn: expires_in, scopesOrTransform }));
}
