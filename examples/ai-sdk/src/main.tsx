import { StrictMode, useEffect, useState, type FormEvent } from "react";
import { createRoot } from "react-dom/client";
import { useChat } from "@ai-sdk/react";
import { RunreelChatTransport } from "@runreel/ai";
import { lastAssistantMessageIsCompleteWithApprovalResponses, type UIMessage } from "ai";
import { history, type Past } from "./history";

const url = (import.meta.env.VITE_RUNREEL_URL as string | undefined) ?? "http://127.0.0.1:7717";
const transport = new RunreelChatTransport({ url, agent: "guide", resumesEnded: true });

/** The chat in the page's address, so that a reload goes on with it. */
function idOfAddress(): string {
  if (window.location.hash.length < 2) window.location.hash = crypto.randomUUID();
  return window.location.hash.slice(1);
}

function Chat({ id, past }: { id: string; past: Past }) {
  const chat = useChat({
    id,
    ...past,
    transport,
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
  });
  const isBusy = chat.status === "submitted" || chat.status === "streaming";
  const send = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const text = String(new FormData(event.currentTarget).get("text"));
    void chat.sendMessage({ text });
  };
  return (
    <>
      {chat.messages.map((message) => (
        <article key={message.id} className={message.role}>
          {message.parts.map((part, at) => (
            <Part key={at} part={part} answer={chat.addToolApprovalResponse} />
          ))}
        </article>
      ))}
      <form onSubmit={send}>
        <label>
          Ask <input name="text" defaultValue="Which year is it?" size={30} />
        </label>{" "}
        <button disabled={isBusy}>Send</button>{" "}
        <button type="button" disabled={!isBusy} onClick={() => void transport.cancel(id)}>
          Stop
        </button>
      </form>
      <p role="status">{chat.error ? `error: ${chat.error.message}` : chat.status}</p>
    </>
  );
}

type Answer = ReturnType<typeof useChat>["addToolApprovalResponse"];

function Part({ part, answer }: { part: UIMessage["parts"][number]; answer: Answer }) {
  if (part.type === "text") return <p>{part.text}</p>;
  if (part.type === "reasoning") return <p className="reasoning">{part.text}</p>;
  if (part.type !== "dynamic-tool") return null;
  const { approval, input, state } = part;
  const { command } = input as { command: string };
  if (state !== "approval-requested" || approval === undefined) return <pre>{`$ ${command} (${state})`}</pre>;
  return (
    <fieldset>
      <legend>{`Run ${command}?`}</legend>
      <button onClick={() => void answer({ id: approval.id, approved: true })}>Yes</button>{" "}
      <button onClick={() => void answer({ id: approval.id, approved: false })}>No</button>
    </fieldset>
  );
}

function App() {
  const [id] = useState(idOfAddress);
  const [past, setPast] = useState<Past | null>(null);
  useEffect(() => void history(url, id).then(setPast), [id]);
  return past === null ? null : <Chat id={id} past={past} />;
}

const root = document.getElementById("root");
if (root !== null)
  createRoot(root).render(
    <StrictMode>
      <App />
    </StrictMode>,
  );
