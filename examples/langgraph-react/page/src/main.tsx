import { StrictMode, useMemo, useState, type FormEvent } from "react";
import { createRoot } from "react-dom/client";
import { Client } from "@runreel/client";
import { RunreelProvider, useInterrupts, useMessages, useRun } from "@runreel/react";

/** What agent.py answers: the run, the server, and a token that may read this run alone. */
interface Started {
  run_id: string;
  url: string;
  token: string | null;
}

async function post<T>(path: string, body: unknown): Promise<T> {
  const response = await fetch(path, { method: "POST", body: JSON.stringify(body) });
  if (!response.ok) throw new Error(`${path}: ${response.status}`);
  return (await response.json()) as T;
}

/** The run in the page's address, so that a reload goes on where it was. */
function fromAddress(): Started | null {
  const { hash } = window.location;
  return hash.length > 1 ? (JSON.parse(decodeURIComponent(hash.slice(1))) as Started) : null;
}

function App() {
  const [started, setStarted] = useState(fromAddress);
  const begin = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const question = new FormData(event.currentTarget).get("question");
    const run = await post<Started>("/runs", { question });
    window.location.hash = encodeURIComponent(JSON.stringify(run));
    setStarted(run);
  };
  if (started !== null) return <Followed {...started} />;
  return (
    <form onSubmit={(event) => void begin(event)}>
      <label>
        Where to? <input name="question" defaultValue="A trip to Rome, please." size={30} />
      </label>{" "}
      <button>Ask</button>
    </form>
  );
}

function Followed({ run_id, url, token }: Started) {
  const client = useMemo(() => new Client({ url, token: token ?? undefined }), [url, token]);
  return (
    <RunreelProvider client={client}>
      <Conversation run_id={run_id} />
    </RunreelProvider>
  );
}

function Conversation({ run_id }: { run_id: string }) {
  const run = useRun(run_id);
  const messages = useMessages(run_id);
  const { open } = useInterrupts(run_id);
  return (
    <>
      {messages.map((message) =>
        message.kind === "message" ? (
          <p key={message.id} className={message.role}>
            {message.text}
          </p>
        ) : null,
      )}
      {open.map(({ interrupt_id, prompt }) => (
        <fieldset key={interrupt_id}>
          <legend>{prompt}</legend>
          <button onClick={() => void post("/answers", { run_id, interrupt_id, agreed: true })}>Yes</button>{" "}
          <button onClick={() => void post("/answers", { run_id, interrupt_id, agreed: false })}>No</button>
        </fieldset>
      ))}
      <p className="state" role="status">
        {run.status ?? "queued"}, event {run.last_seq}, connection {run.connection.state}
      </p>
    </>
  );
}

const root = document.getElementById("root");
if (root !== null)
  createRoot(root).render(
    <StrictMode>
      <App />
    </StrictMode>,
  );
