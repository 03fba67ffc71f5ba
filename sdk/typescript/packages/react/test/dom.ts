import { Window } from "happy-dom";

/** A document for React; `fetch`, streams and signals stay Node's own. */
const window = new Window({ url: "http://localhost/" });
for (const [name, value] of Object.entries({
  window,
  document: window.document,
  navigator: window.navigator,
  HTMLElement: window.HTMLElement,
  IS_REACT_ACT_ENVIRONMENT: false,
}))
  Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });

// React looks for the document when it is loaded. The time is for a busy machine; what is waited for comes at once.
const { configure } = await import("@testing-library/react");
configure({ asyncUtilTimeout: 20_000 });
