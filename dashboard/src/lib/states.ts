// States of runs and steps: each has a word, a shape and a colour, so that none depends on colour alone.

export type Tone = "blue" | "green" | "red" | "amber" | "violet" | "grey";
export interface Look {
  word: string;
  shape: string;
  tone: Tone;
}

const look = (word: string, shape: string, tone: Tone): Look => ({ word, shape, tone });

export const RUN_STATES: Record<string, Look> = {
  running: look("running", "play", "blue"),
  blocked: look("waiting", "wait", "grey"),
  pending: look("pending", "dots", "grey"),
  approved: look("approved", "dots", "blue"),
  paused: look("paused", "bars", "violet"),
  cancelling: look("cancelling", "slash", "amber"),
  parked: look("parked", "alert", "amber"),
  diverged: look("diverged", "fork", "red"),
  failed: look("failed", "cross", "red"),
  completed: look("completed", "check", "green"),
  cancelled: look("cancelled", "slash", "grey"),
  continued: look("continued", "arrow", "grey"),
  skipped: look("skipped", "arrow", "grey"),
  open: look("open", "play", "blue"),
};

export const STEP_STATES: Record<string, Look> = {
  PENDING: look("pending", "dots", "grey"),
  RUNNING: look("running", "play", "blue"),
  SUCCESS: look("done", "check", "green"),
  FAILED: look("failed", "cross", "red"),
  SKIPPED: look("skipped", "arrow", "grey"),
  PARKED: look("parked", "alert", "amber"),
  WAITING: look("waiting", "wait", "grey"),
};

export const lookOf = (status: string): Look => RUN_STATES[status] ?? STEP_STATES[status] ?? look(status.toLowerCase(), "dots", "grey");

const ENDED = new Set(["completed", "failed", "cancelled", "continued"]);
export const isOver = (status: string): boolean => ENDED.has(status);

/** A step that waits for a signal or sleeps is not running, whatever the contract calls it. */
export function stepState(step: { status?: string; kind?: string; is_parked?: boolean }): string {
  if (step.is_parked) return "PARKED";
  const status = step.status ?? "PENDING";
  return status === "RUNNING" && (step.kind === "signal" || step.kind === "timer") ? "WAITING" : status;
}

export const TIMES: Record<string, string> = {
  queued: "queued",
  limited: "limited",
  backoff: "backoff",
  in_doubt: "in doubt",
  executing: "executing",
  waiting: "waiting",
};
