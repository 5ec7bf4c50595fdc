// The shapes of the HTTP API, as far as the pages use them.

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
export type Schema = { [name: string]: unknown };

export interface RunRow {
  run_id: string;
  program: string;
  status: string;
  created: string;
  closed?: string | null;
  version?: string;
  scope?: string;
  key?: string | null;
  tags?: Record<string, string>;
  parent?: string | null;
  chain?: string | null;
  forked_from?: string | null;
  error?: string | null;
  parked_reason?: string | null;
  owner?: string | null;
  entries?: number;
}

export interface RunHeader extends RunRow {
  kind: "workflow" | "graph" | null;
  is_known?: boolean;
  digest?: string;
  current_run_id: string;
  current_entries?: number;
  semaphore?: number;
  schedule?: string | null;
  children?: boolean;
  forks?: boolean;
}

export interface Count {
  runs: number;
  is_complete: boolean;
}

export interface ErrorGroup {
  error: string;
  runs: number;
  parked_steps: number;
  last_ms: number;
  run_id: string;
  program: string;
  code: string;
  message: string;
  step: string | null;
}

export interface Action {
  method: string;
  path: string;
  body: Record<string, Json>;
  needs?: string[];
}

export interface Explanation {
  run_id: string;
  status: string;
  summary: string;
  causes: { kind: string; text: string; run_id: string; step?: string | null; since_ms?: number | null; until_ms?: number | null; then?: string; command?: string | null }[];
  next_text?: string;
  next_at_ms?: number | null;
  command?: string | null;
  action?: Action | null;
}

export interface Wait {
  kind: string;
  step: string;
  name?: string | null;
  key?: string | null;
  since_ms?: number;
  until_ms?: number | null;
  awaited?: boolean;
  schema?: Schema | null;
}

export interface StepError {
  code: string;
  message: string;
  retryable?: boolean;
  fingerprint?: string;
}

export interface Step {
  step: string;
  run_id: string;
  name?: string;
  kind?: string;
  status?: string;
  logical_attempt?: number;
  engine_attempt?: number | null;
  scheduled_at_ms?: number | null;
  started_at_ms?: number | null;
  completed_at_ms?: number | null;
  error?: StepError | null;
  reason?: string;
  child_run_id?: string | null;
  is_parked?: boolean;
  times?: Record<string, number>;
  artifacts?: { id?: string; kind?: string; name?: string; size?: number; media_type?: string }[];
}

export interface Attempt {
  engine_attempt: number;
  logical_attempt: number;
  started_at_ms?: number | null;
  ended_at_ms?: number | null;
  outcome?: string | null;
  error?: { code: string; message: string; traceback?: string | null } | null;
  retry_at_ms?: number | null;
}

export interface StepDetail extends Step {
  input?: Json;
  output?: Json;
  input_bytes?: number;
  output_bytes?: number;
  is_cut?: boolean;
  is_erased?: boolean;
  error_traceback?: string | null;
  key?: string | null;
  attempts?: Attempt[];
  entries?: number[];
  account?: string | null;
  balance?: number | string | null;
  balance_text?: string | null;
  is_retryable?: boolean;
  is_skippable?: boolean;
  is_answerable?: boolean;
  schema?: Schema | null;
}

export interface StepsPage {
  steps: Step[];
  cursor: string | null;
  total?: number;
  counts?: Record<string, number>;
}

export interface TimelineRow {
  name: string;
  kind: string;
  steps: number;
  step: string | null;
  failed?: number;
  open?: number;
  begun_at_ms: number;
  ended_at_ms?: number | null;
  segments: { kind: string; from_ms: number; to_ms: number; steps: number }[];
}

export interface Timeline {
  from_ms: number;
  to_ms: number;
  now_ms: number;
  is_open: boolean;
  rows: TimelineRow[];
  idle?: { from_ms: number; to_ms: number }[];
  total_steps: number;
}

export interface Posting {
  account: string;
  increment: string;
  value: number | string;
}

export interface JournalEntry {
  run_id: string;
  seq: number;
  offset: number;
  type: string;
  entry: string;
  step?: string | null;
  logical_attempt?: number;
  engine_attempt?: number | null;
  data?: Record<string, Json>;
  emitted_at_ms: number;
  idempotency_key?: string;
  hash: string;
  postings?: Posting[];
  semaphore?: number;
}

export interface Field {
  name: string;
  digits: string;
  value: number;
  meaning: string;
}

export interface Account {
  run_id: string;
  account: string;
  balance: number | string;
  text: string;
  digits: string;
  name?: string;
  fields?: Field[];
}

export interface LedgerPage {
  accounts: Account[];
  trial_balance: { semaphore: number; open: { account: string; what: string; name?: string }[]; balances: boolean };
  head: string;
  entries: number;
}

export interface AuditReport {
  entries: number;
  accounts: number;
  head: string;
  findings: { rule: string; text: string }[];
  is_clean: boolean;
}

export interface Decision {
  seq: number;
  at_ms: number;
  type: string;
  actor?: string;
  role?: string;
  reason?: string;
  step?: string | null;
  is_accepted: boolean;
  code?: string;
}

export interface ForkPreview {
  source: string;
  fork: string;
  id: string;
  entries: number;
  repeated?: { step: string; name?: string; key?: string }[];
  kept?: Json[];
  doubted?: Json[];
  signals?: Json[];
  lost_signals?: Json[];
}

export interface DiffStep {
  step: string;
  change: string;
  a: { name?: string; status?: string; input?: Json; output?: Json } | null;
  b: { name?: string; status?: string; input?: Json; output?: Json } | null;
}

export interface BulkAct {
  id: string;
  state: string;
  type: string;
  reason: string;
  total: number | null;
  done: number;
  accepted: number;
  rejected: number;
  undecided: number;
  failed: number;
  rejections?: Record<string, number>;
  failures?: { run_id: string; code: string; detail: string }[];
  started_at_ms: number;
  ended_at_ms?: number | null;
}

export interface InboxItem {
  kind: string;
  run_id: string;
  program: string;
  key?: string | null;
  scope?: string;
  step: string;
  name?: string | null;
  hook_key?: string | null;
  since_ms?: number;
  until_ms?: number | null;
  schema?: Schema | null;
  error?: string | null;
  message?: string | null;
  answer: Action;
}

export interface Drawing {
  nodes: { name: string; kind: string; caption?: string; steps?: number; open?: number; failed?: number; step?: string | null }[];
  edges: { from: string; to: string; condition?: string; is_back?: boolean }[];
}

export interface Source extends Partial<Drawing> {
  kind: "workflow" | "graph";
  program: string;
  version?: string;
  file?: string;
  first_line?: number;
  text?: string;
  is_same?: boolean;
  steps?: { step: string; line: number; function?: string }[];
  awaited?: { step: string; line: number; function?: string }[];
  problem?: string | null;
}

export interface Me {
  name: string;
  role: string;
  scope: string | null;
  acts: string[];
}
