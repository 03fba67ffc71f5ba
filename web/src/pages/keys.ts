/** Whether the person is typing; otherwise single keys are commands. */
export function isWriting(event: KeyboardEvent): boolean {
  if (event.metaKey || event.ctrlKey || event.altKey) return true;
  const target = event.target as HTMLElement | null;
  return target?.closest?.("input, textarea, select, dialog, [contenteditable]") !== null;
}
