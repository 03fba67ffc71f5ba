/** Single keys are commands unless somebody is writing. */
export function isWriting(event: KeyboardEvent): boolean {
  if (event.metaKey || event.ctrlKey || event.altKey) return true;
  const target = event.target as HTMLElement | null;
  return target?.closest?.("input, textarea, select, dialog, [contenteditable]") !== null;
}
