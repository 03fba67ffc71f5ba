import { expect, test as base, type Page } from "@playwright/test";
import { Server, startAndStop_ms } from "./server.ts";
import { secret, signed } from "./signed.ts";

const test = base.extend<{ server: Server }>({
  server: [
    async ({}, use) => {
      const server = await Server.start(undefined, {
        flags: ["--auth", "jwt"],
        env: { RUNREEL_JWT_SECRET: secret },
      });
      try {
        await use(server);
      } finally {
        await server.remove();
      }
    },
    { timeout: startAndStop_ms },
  ],
});

/** The tab signs in, as its person does. */
async function signIn(page: Page, token: string): Promise<void> {
  await page.getByLabel("A JWT or an").fill(token);
  await page.getByRole("button", { name: "Save" }).click();
}

/** What the API answers to a token. */
async function status(server: Server, token: string): Promise<number> {
  const headers = { authorization: `Bearer ${token}` };
  return (await fetch(`${server.url}/api/runs`, { headers })).status;
}

test("a token made in the page works until it is revoked there, with the keyboard alone", async ({
  page,
  context,
  server,
}) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  const trouble: string[] = [];
  page.on("pageerror", (error) => trouble.push(error.message));
  await page.addInitScript(() =>
    document.addEventListener("securitypolicyviolation", (event) => {
      throw new Error(`policy: ${event.violatedDirective} ${event.blockedURI}`);
    }),
  );
  // Without a token the page asks for one.
  await page.goto(`${server.url}/tokens`);
  await signIn(page, signed("alice"));
  await expect(page.getByText("No API tokens.")).toBeVisible();

  await page.getByRole("button", { name: "New token" }).focus();
  await page.keyboard.press("Enter");
  await expect(page.getByRole("dialog", { name: "New API token" })).toBeVisible();
  await page.getByLabel("Name").focus();
  await page.keyboard.type("nightly reports");
  for (const _ of ["read", "emit"]) await page.keyboard.press("Tab");
  await page.keyboard.press("Space");
  await page.getByLabel("Expires after").selectOption("7 days");
  await page.getByRole("button", { name: "Create" }).focus();
  await page.keyboard.press("Enter");

  const section = page.getByRole("region", { name: "The new token" });
  await expect(section).toBeFocused();
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await expect(section.getByRole("button", { name: "Copied" })).toBeVisible();
  const token = await page.evaluate(() => navigator.clipboard.readText());
  expect(token).toMatch(/^rr_[0-9a-f]{64}$/);
  expect(await section.locator("[data-secret]").textContent()).toBe(token);
  expect(await status(server, token)).toBe(200);

  // It is shown this once: neither the list nor the tab has it.
  await section.getByRole("button", { name: "Done" }).press("Enter");
  await expect(page.getByRole("heading", { name: "API tokens" })).toBeFocused();
  const row = page.getByRole("row").filter({ hasText: "nightly reports" });
  const week = new Date(Date.now() + 7 * 86_400_000).toISOString().slice(0, 10);
  await expect(row).toContainText("read, emit");
  await expect(row).toContainText(week);
  expect(await page.content()).not.toContain(token);
  expect(await page.evaluate(() => JSON.stringify([{ ...sessionStorage }, { ...localStorage }]))).not.toContain(token);

  const revoke = page.getByRole("button", { name: "Revoke nightly reports" });
  await revoke.press("Enter");
  const dialog = page.getByRole("dialog", { name: "Revoke nightly reports?" });
  await expect(dialog).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(dialog).toBeHidden();
  await expect(revoke).toBeFocused();
  expect(await status(server, token), "nothing was confirmed").toBe(200);
  await revoke.press("Enter");
  await dialog.getByRole("button", { name: "Revoke" }).press("Enter");
  await expect(row).toContainText("revoked");
  await expect(revoke).toBeHidden();
  await expect(page.getByRole("status")).toContainText("nightly reports is revoked.");
  expect(await status(server, token)).toBe(401);
  expect(trouble).toEqual([]);
});

test("a token that may not manage tokens is told so, and what would be allowed to", async ({ page, server }) => {
  const made = await fetch(`${server.url}/api/tokens`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${signed("alice")}` },
    body: JSON.stringify({ name: "reader", scopes: ["read"] }),
  });
  const { token } = (await made.json()) as { token: string };
  await page.goto(`${server.url}/tokens`);
  await signIn(page, token);
  await expect(page.getByText("This tab's token may not manage API tokens.")).toBeVisible();
  await expect(page.getByRole("button", { name: "New token" })).toBeHidden();
});

test("a refused token says why and keeps what was typed", async ({ page, server }) => {
  await page.goto(`${server.url}/tokens`);
  await signIn(page, signed("alice"));
  await page.getByRole("button", { name: "New token" }).click();
  const dialog = page.getByRole("dialog", { name: "New API token" });
  await dialog.getByLabel("Name").fill("no scope");
  await dialog.getByRole("checkbox", { name: "read" }).uncheck();
  await dialog.getByRole("button", { name: "Create" }).click();
  await expect(dialog.getByRole("alert")).toContainText("at least one scope");
  await expect(dialog.getByLabel("Name")).toHaveValue("no scope");
  await dialog.getByRole("checkbox", { name: "approve" }).check();
  await dialog.getByRole("button", { name: "Create" }).click();
  await expect(page.locator("[data-secret]")).toHaveText(/^rr_/);
});

test("the page of the tokens is loaded when it is opened, not before", async ({ page, server }) => {
  const loaded: string[] = [];
  page.on("request", (request) => loaded.push(new URL(request.url()).pathname));
  await page.goto(server.url);
  await signIn(page, signed("alice"));
  await expect(page.getByRole("heading", { name: "No runs yet" })).toBeVisible();
  const isOwn = (path: string) => path.startsWith("/assets/TokensPage-");
  expect(loaded.filter(isOwn)).toEqual([]);
  await page.getByRole("link", { name: "Settings" }).click();
  await page.getByRole("link", { name: "API tokens" }).click();
  await expect(page.getByText("No API tokens.")).toBeVisible();
  await expect(page).toHaveURL(`${server.url}/tokens`);
  expect(loaded.filter(isOwn)).toHaveLength(2);
});

test("a shared link reads its run in a tab of its own, and the token does not stay in the address", async ({
  page,
  browser,
  server,
}) => {
  const made = await fetch(`${server.url}/api/runs`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${signed("alice")}` },
    body: JSON.stringify({ title: "To be shared" }),
  });
  const { run_id } = (await made.json()) as { run_id: string };
  await page.goto(`${server.url}/runs/${run_id}`);
  await signIn(page, signed("alice"));
  await page.getByRole("button", { name: "Share" }).click();
  await page.getByRole("button", { name: "Make a link" }).click();
  const link = await page.locator("[data-share]").innerText();
  expect(link).toContain(`/runs/${run_id}#token=rr_`);

  const other = await (await browser.newContext()).newPage();
  const asked: string[] = [];
  other.on("request", (request) => asked.push(request.url()));
  await other.goto(link);
  await expect(other.getByRole("heading", { name: "To be shared" })).toBeVisible();
  expect(other.url()).toBe(`${server.url}/runs/${run_id}`);
  expect(asked.filter((url) => url.includes("rr_"))).toEqual([]);
  await other.reload();
  await expect(other.getByRole("heading", { name: "To be shared" })).toBeVisible();
  await other.context().close();
});

test("a token is remembered for later tabs when its person says so", async ({ page, context, server }) => {
  await page.goto(server.url);
  await page.getByLabel("A JWT or an").fill(signed("alice"));
  await page.getByRole("button", { name: "Save" }).click();
  await expect(page.getByRole("heading", { name: "No runs yet" })).toBeVisible();
  const second = await context.newPage();
  await second.goto(server.url);
  await expect(second.getByRole("dialog", { name: "Bearer token" })).toBeVisible();
  await second.getByLabel("A JWT or an").fill(signed("alice"));
  await second.getByRole("checkbox").check();
  await second.getByRole("button", { name: "Save" }).click();
  await expect(second.getByRole("heading", { name: "No runs yet" })).toBeVisible();
  const third = await context.newPage();
  await third.goto(server.url);
  await expect(third.getByRole("heading", { name: "No runs yet" })).toBeVisible();
});

test("a tab follows the token that all remember, and a token of one tab is no other tab's", async ({
  page,
  context,
  server,
}) => {
  const headers = { "content-type": "application/json", authorization: `Bearer ${signed("alice")}` };
  const body = JSON.stringify({ title: "Alice's run" });
  expect((await fetch(`${server.url}/api/runs`, { method: "POST", headers, body })).status).toBe(201);
  const asked = () => page.evaluate(() => localStorage.getItem("runreel.sql.history"));
  await page.goto(server.url);
  await page.getByRole("checkbox", { name: /^Remember/ }).check();
  await signIn(page, signed("alice"));
  await expect(page.getByText("Alice's run")).toBeVisible();
  await page.goto(`${server.url}/sql`);
  await page.getByLabel("Query").fill("select 'of alice' as words");
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await expect(page.locator("[data-rows]")).toBeVisible();
  expect(await asked()).toContain("of alice");
  await page.goto(server.url);

  const second = await context.newPage();
  await second.goto(server.url);
  await expect(second.getByText("Alice's run")).toBeVisible();
  await second.getByRole("button", { name: "Token set" }).click();
  await second.getByRole("checkbox", { name: /^Remember/ }).uncheck();
  await signIn(second, signed("bob"));
  await expect(second.getByRole("heading", { name: "No runs yet" })).toBeVisible();
  await page.reload();
  await expect(page.getByText("Alice's run")).toBeVisible();

  await second.getByRole("button", { name: "Token set" }).click();
  await expect(second.getByRole("checkbox", { name: /^Remember/ })).not.toBeChecked();
  await second.getByRole("checkbox", { name: /^Remember/ }).check();
  await signIn(second, signed("bob"));
  await expect(page.getByRole("heading", { name: "No runs yet" })).toBeVisible();
  expect(await asked()).toBe("[]");
});

test("another token closes the streams that the one before had opened", async ({ page, server }) => {
  const open = async () => {
    const text = await (await fetch(`${server.url}/metrics`)).text();
    return Number(/^runreel_streams_open (\d+)/m.exec(text)?.[1] ?? 0);
  };
  await page.goto(server.url);
  await signIn(page, signed("alice"));
  await expect(page.locator("[data-state]")).toHaveAttribute("data-state", "live");
  await expect.poll(open).toBe(1);
  const created = await fetch(`${server.url}/api/runs`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${signed("alice")}` },
    body: JSON.stringify({ title: "Alice's run" }),
  });
  expect(created.status).toBe(201);
  await expect(page.getByText("Alice's run")).toBeVisible();
  await page.getByRole("button", { name: "Token set" }).click();
  await signIn(page, signed("bob"));
  await expect(page.getByText("Alice's run")).toHaveCount(0);
  await expect(page.locator("[data-state]")).toHaveAttribute("data-state", "live");
  await expect.poll(open).toBe(1);
});
