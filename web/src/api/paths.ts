/** The route of a run. */
export const runPath = (run_id: string): string => `/api/runs/${encodeURIComponent(run_id)}`;
