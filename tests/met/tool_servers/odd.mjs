// A tool server on stdio that answers with raw texts: `pages` of its list by cursor, `calls` by the name of the tool. In
// each, $ID is the id of the request.
import { readFileSync } from "node:fs"
import { createInterface } from "node:readline"

const play = JSON.parse(readFileSync(process.argv[2], "utf8"))
for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line)
  if (id === undefined) continue
  const raw =
    method === "initialize"
      ? play.begin
      : method === "tools/list"
        ? play.pages[params?.cursor ?? ""]
        : play.calls[params.name]
  process.stdout.write(raw.replaceAll("$ID", JSON.stringify(id)) + "\n")
}
