/** The views of a run. */
export const tabs = [
  { id: "timeline", label: "Timeline" },
  { id: "log", label: "Log" },
  { id: "output", label: "Conversation" },
  { id: "artifacts", label: "Artifacts" },
  { id: "state", label: "State" },
  { id: "json", label: "JSON" },
] as const;

export type TabId = (typeof tabs)[number]["id"];
