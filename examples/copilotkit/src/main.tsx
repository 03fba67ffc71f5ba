import { StrictMode, useState } from "react";
import { createRoot } from "react-dom/client";
import { CopilotChat, CopilotKitProvider } from "@copilotkit/react-core/v2";
import "@copilotkit/react-core/v2/styles.css";

/** The thread in the page's address, so that a reload goes on with it. */
function threadOfAddress(): string {
  if (window.location.hash.length < 2) window.location.hash = crypto.randomUUID();
  return window.location.hash.slice(1);
}

function App() {
  const [threadId] = useState(threadOfAddress);
  return (
    <CopilotKitProvider runtimeUrl="/api/copilotkit">
      <CopilotChat agentId="guide" threadId={threadId} />
    </CopilotKitProvider>
  );
}

const root = document.getElementById("root");
if (root !== null)
  createRoot(root).render(
    <StrictMode>
      <App />
    </StrictMode>,
  );
