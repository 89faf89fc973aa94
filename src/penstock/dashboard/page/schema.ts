// Written by tools/page_types.py from the API's own description. Do not edit.

export type Agenda = {
  now: string;
  until: string;
  due: (Due)[];
  next_tick_at: string | null;
  seen: string;
  more: boolean;
  verdicts_max: number | null;
};

export type AliasRequest = {
  run_as: string;
};

export type BackfillRequest = {
  from: string;
  to: string;
};

export type BackfillResponse = {
  ticks: (TickItem)[];
};

export type BatchAnswer = {
  index: number;
  id?: string | null;
  state?: State | null;
  created?: boolean;
  problem?: Problem | null;
};

export type BatchRequest = {
  jobs: (unknown)[];
};

export type BatchResponse = {
  accepted: number;
  refused: number;
  jobs: (BatchAnswer)[];
};

export type CircuitState = "closed" | "open";

export type Claim = {
  job: string;
  type: string;
  queue: string;
  attempt: number;
  fence: number;
  params?: unknown;
  params_object?: ObjectLink | null;
  timeout_seconds?: number | null;
  lease_seconds: number;
  inputs?: (FileLink)[];
  tags?: (string)[];
  alone?: boolean;
  priority?: number;
  alone_in_worker?: boolean;
  waited_seconds?: number;
};

export type ClaimRequest = {
  types: (string)[];
  limit: number;
  wait_seconds?: number;
  queues?: (string)[] | null;
  except_queues?: (string)[];
  only_given_back?: (string)[];
};

export type ClaimResponse = {
  claims: (Claim)[];
};

export type Cron = {
  type: "cron";
  expression: string;
  timezone: string;
};

export type Decision = {
  name: string;
  version: number;
  expected_tick_at: string | null;
  expected_pending_at?: string | null;
  next_tick_at: string | null;
  pending_tick_at?: string | null;
  verdicts?: (Verdict)[];
  cancel?: (string)[];
  by_hand?: boolean;
};

export type DeliveryItem = {
  shard: number;
  at: string;
  delivered: boolean;
  first: string;
  last: string;
  events: number;
  attempt: number;
  status: number | null;
  detail: string | null;
  took_seconds: number;
};

export type DeliveryLimits = {
  in_flight?: number;
  per_second?: number | null;
};

export type DeliveryPage = {
  deliveries: (DeliveryItem)[];
  before: string | null;
  missing_shards: (number)[];
};

export type Depth = {
  type: "depth";
  steps?: (Step)[];
  empty_for_seconds?: number | string;
  cooldown_seconds?: number | string;
};

export type DirectUpload = {
  id: string | null;
  url: string | null;
  method: string | null;
  headers: Record<string, string> | null;
  expires_at: string | null;
};

export type DrainRequest = {
  patience_seconds?: number | null;
};

export type Due = {
  schedule: Schedule;
  active: (string)[];
  completed_at: string | null;
};

export type DueRequest = {
  slot_seconds: number;
  limit: number;
  wait_seconds?: number;
  seen?: string | null;
};

export type ErrorCode = "corrupt_input" | "crashed" | "exit_status" | "input_unavailable" | "invalid_output" | "invalid_params" | "invalid_result" | "out_of_memory" | "raised" | "timeout" | "worker_lost";

export type EventContent = "facts" | "item";

export type EventFilter = {
  types: (string)[] | null;
  queues: (string)[] | null;
  states: (State)[] | null;
  tags: (string)[] | null;
};

export type EventItem = {
  id: string;
  job: string;
  version: number;
  type: string;
  queue: string;
  move: string;
  before: State | null;
  after: State;
  attempt: number;
  reason: string | null;
  at: string;
  item?: JobItem | null;
};

export type EventPage = {
  events: (EventItem)[];
  cursor: string;
  more: boolean;
  missing_shards: (number)[];
};

export type Every = {
  type: "interval";
  span: string;
  after_completion: boolean;
};

export type FileItem = {
  name: string;
  size: number;
  digest: string;
  content_type: string;
};

export type FileLink = {
  name: string;
  object: ObjectLink;
};

export type FilterChange = {
  types?: (string)[] | null;
  queues?: (string)[] | null;
  states?: ("scheduled" | "queued" | "running" | "succeeded" | "failed" | "cancelled" | "expired")[] | null;
  tags?: (string)[] | null;
};

export type FilterRequest = {
  types?: (string)[] | null;
  queues?: (string)[] | null;
  states?: ("scheduled" | "queued" | "running" | "succeeded" | "failed" | "cancelled" | "expired")[] | null;
  tags?: (string)[] | null;
};

export type Fleet = {
  min?: number;
  max?: number;
  target_wait_seconds?: number | string | null;
  policy?: Depth | Wait | null;
  capacity?: number | null;
  queues?: (string)[] | null;
  keep_warm?: (KeepWarm)[];
  out_after_seconds?: number | string;
  in_after_seconds?: number | string | null;
  blind_for_seconds?: number | string;
  fallback?: number;
  image?: string | null;
  command?: (string)[] | null;
  environment?: Record<string, string>;
  cpus?: number | null;
  memory_mib?: number | null;
};

export type FleetChange = {
  min?: number;
  max?: number;
  target_wait_seconds?: number | string | null;
  policy?: Depth | Wait | null;
  capacity?: number | null;
  queues?: (string)[] | null;
  keep_warm?: (KeepWarm)[];
  out_after_seconds?: number | string;
  in_after_seconds?: number | string | null;
  blind_for_seconds?: number | string;
  fallback?: number;
  reset?: boolean;
};

export type FleetDecision = {
  at: string;
  desired: number;
  start?: number;
  stop?: number;
  reason: string;
  reading: Look;
};

export type FleetItem = {
  name: string;
  source: string;
  fleet: Fleet;
  queues: (string)[] | null;
  except_queues: (string)[];
  paused: boolean;
  count: number | null;
  desired: number | null;
  workers: Record<string, number>;
  reason: string | null;
  latest: FleetDecision | null;
  autoscaler: string | null;
  app: string | null;
  trouble: string | null;
  faults: (string)[];
  started: number;
  stopped: number;
  starts: number;
  stops: number;
  decisions: (FleetDecision)[];
};

export type FleetList = {
  fleets: (FleetItem)[];
};

export type HandlerKind = "async" | "command" | "isolated" | "thread";

export type Health = {
  status: string;
  version: string;
};

export type HistoryReport = {
  from: string;
  to: string;
  step_seconds: number;
  queue: string | null;
  type: string | null;
  steps: (HistoryStep)[];
  missing_shards: (number)[];
};

export type HistoryStep = {
  at: string;
  arrived: number;
  started: number;
  succeeded: number;
  errored: number;
  failed: number;
  cancelled: number;
  expired: number;
  lost: number;
  waiting: number;
  running: number;
  scheduled: number;
  wait: Percentiles | null;
  run: Percentiles | null;
};

export type JobError = {
  code: ErrorCode;
  message: string;
  attempt?: number;
  error_class?: string | null;
  traceback?: string | null;
  retryable?: boolean;
  error_bases?: (string)[];
};

export type JobItem = {
  id: string;
  type: string;
  queue: string;
  state: State;
  reason: string | null;
  priority: number;
  params: unknown;
  result: unknown;
  error: JobError | null;
  progress: Progress | null;
  attempt: number;
  max_attempts: number;
  fence: number;
  retry_policy: Retry;
  timeout_seconds: number | null;
  scheduled_at: string;
  created_at: string;
  started_at: string | null;
  completed_at: string | null;
  expires_at: string | null;
  cancel_requested: boolean;
  tags: (string)[];
  inputs: (FileItem)[];
  outputs: (FileItem)[];
  worker: string | null;
  retry_of: string | null;
  schedule: string | null;
  tick_at: string | null;
  interval: number | null;
  version: number;
  omitted: (string)[];
};

export type JobPage = {
  jobs: (JobItem)[];
  cursor: string | null;
  missing_shards: (number)[];
};

export type JobType = {
  name: string;
  queue: string;
  kind?: HandlerKind;
  priority?: number;
  retry?: Retry;
  timeout_seconds?: number | null;
  params_schema?: Record<string, unknown> | null;
  description?: string | null;
  fleet?: Fleet | null;
};

export type JoinRequest = {
  worker: Worker;
  types: (JobType)[];
};

export type JoinResponse = {
  lease_seconds: number;
  heartbeat_seconds: number;
};

export type KeepWarm = {
  workers?: number;
  days?: (string)[];
  start?: string;
  end?: string;
  timezone?: string;
};

export type KeyItem = {
  id: string;
  name: string;
  scopes: (KeyScope)[];
  queues: (string)[] | null;
  created_at: string;
  expires_at: string | null;
  parent: string | null;
};

export type KeyList = {
  keys: (KeyItem)[];
};

export type KeyRequest = {
  name: string;
  scopes: (KeyScope)[];
  queues?: (string)[] | null;
  lifetime_seconds?: number | null;
};

export type KeyScope = "admin" | "jobs:cancel" | "jobs:read" | "jobs:write" | "queues" | "scheduler" | "schedules" | "subscriptions" | "worker";

export type Lease = {
  job: string;
  fence: number;
  progress?: Progress | null;
  begun?: boolean;
};

export type LimitsChange = {
  in_flight?: number;
  per_second?: number | null;
};

export type LiveDigest = {
  at: string;
  jobs: Record<string, number>;
  oldest_seconds: number | null;
  queues: (QueueItem)[];
  more_queues: number;
  workers: Record<string, number>;
  capacity: number;
  fleets: (LiveFleet)[];
  recent: (HistoryStep)[] | null;
  missing_shards: (number)[];
};

export type LiveFleet = {
  name: string;
  min: number;
  max: number;
  paused: boolean;
  count: number | null;
  desired: number | null;
  workers: Record<string, number>;
  reason: string | null;
  trouble: string | null;
};

export type LogEntry = {
  job: string;
  fence: number;
  lines: (LogLine)[];
  first?: number | null;
};

export type LogLine = {
  at: string;
  stream: string;
  text: string;
  attempt?: number;
};

export type LogPage = {
  lines: (LogLine)[];
  position: number;
};

export type LogRequest = {
  entries: (LogEntry)[];
};

export type Look = {
  backlog?: number | null;
  running?: number | null;
  due_soon?: number | null;
  oldest_wait_seconds?: number | null;
  arrival_rate?: number | null;
  service_seconds?: number | null;
  startup_seconds?: number | null;
  capacity?: number | null;
  starting?: number | null;
  idle?: number | null;
  busy?: number | null;
  draining?: number | null;
  lost?: number | null;
  unknown?: Record<string, string>;
};

export type Loss = "given_back" | "gone" | "lost" | "mine_already" | "unsure";

export type MadeKey = {
  id: string;
  name: string;
  scopes: (KeyScope)[];
  queues: (string)[] | null;
  created_at: string;
  expires_at: string | null;
  parent: string | null;
  key: string;
};

export type MadeSubscription = {
  name: string;
  state: SubscriptionState;
  reason: string | null;
  sink: WebhookSink | SnsSink;
  filter: EventFilter;
  include: EventContent;
  batch: number;
  limits: DeliveryLimits;
  secrets: (SecretItem)[];
  source: SubscriptionSource;
  created_at: string;
  changed_at: string;
  secret: string | null;
};

export type Misfire = "run_all" | "run_once" | "skip";

export type ObjectLink = {
  key: string;
  size: number;
  digest: string;
  content_type?: string;
};

export type OnConflict = "raise" | "replace" | "skip";

export type Outcome = {
  job: string;
  fence: number;
  result?: unknown;
  outputs?: (FileLink)[];
  error?: JobError | null;
  cancelled?: boolean;
};

export type Overlap = "allow" | "cancel_previous" | "queue_one" | "skip";

export type Percentiles = {
  p50: number;
  p95: number;
  p99: number;
};

export type PreviewRequest = {
  interval?: number | null;
  after_completion?: boolean;
  cron?: string | null;
  timezone?: string | null;
  start_at?: string | null;
  end_at?: string | null;
  jitter_seconds?: number;
  count?: number;
};

export type PreviewResponse = {
  ticks: (string)[];
};

export type Problem = {
  type: string;
  title: string;
  status: number;
  code: string;
  detail?: string;
  instance?: string | null;
  known?: (string)[];
};

export type Progress = {
  fraction: number;
  message?: string | null;
};

export type QueueItem = {
  name: string;
  paused: boolean;
  jobs: Record<string, number>;
  oldest_seconds: number | null;
};

export type QueueList = {
  queues: (QueueItem)[];
  missing_shards: (number)[];
};

export type Refusal = {
  job: string;
  fence: number;
  loss: Loss;
};

export type RelayItem = {
  shard: number;
  circuit: CircuitState;
  failures: number;
  retry_at: string | null;
  lag_entries: number;
  lag_seconds: number;
  waiting: number;
  dead: number;
  delivered: number;
  failed: number;
};

export type ReleaseRequest = {
  leases: (Lease)[];
  suspects?: boolean;
};

export type RenewRequest = {
  worker: Worker;
  leases?: (Lease)[];
};

export type RenewResponse = {
  renewals: (Renewal)[];
  drain: DrainRequest | null;
};

export type Renewal = {
  job: string;
  fence: number;
  loss?: Loss | null;
  cancel?: boolean;
};

export type ReplayAnswer = {
  events: number;
  more: boolean;
};

export type ReplayRequest = {
  event?: string | null;
  from?: string | null;
  to?: string | null;
  dead?: boolean;
};

export type RetireRequest = {
  cancel?: boolean;
};

export type RetiredType = {
  name: string;
  jobs: Record<string, number>;
  cancelled: number;
};

export type Retry = {
  kind?: RetryKind;
  max_attempts?: number;
  delay_seconds?: number;
  factor?: number;
  cap_seconds?: number;
  jitter?: boolean;
  never?: (string)[];
};

export type RetryKind = "exponential" | "fixed" | "linear" | "none";

export type RevokedKey = {
  id: string;
  unreached_shards: (number)[];
};

export type RotateRequest = {
  grace_seconds?: number;
  lifetime_seconds?: number | null;
};

export type RotateSecretRequest = {
  secret?: string | null;
};

export type ScaleRequest = {
  count: number | "auto";
};

export type Schedule = {
  name: string;
  when: Every | Cron;
  type: string;
  params: string;
  queue: string | null;
  priority: number | null;
  retry: Retry | null;
  timeout: string | null;
  tags: (string)[];
  start_at: string | null;
  end_at: string | null;
  jitter: string;
  misfire: Misfire;
  misfire_cap: number;
  misfire_grace: string;
  overlap: Overlap;
  paused: boolean;
  version: number;
  next_tick_at: string | null;
  pending_tick_at: string | null;
  last_tick_at: string | null;
  created_at: string;
  updated_at: string;
  deployed_at: string | null;
};

export type ScheduleBody = {
  interval?: number | null;
  after_completion?: boolean;
  cron?: string | null;
  timezone?: string | null;
  start_at?: string | null;
  end_at?: string | null;
  jitter_seconds?: number;
  type: string;
  params?: Record<string, unknown>;
  queue?: string | null;
  priority?: number | null;
  retry_policy?: RetryKind | Retry | null;
  timeout_seconds?: number | null;
  tags?: (string)[];
  misfire?: Misfire;
  misfire_cap?: number;
  misfire_grace_seconds?: number;
  overlap?: Overlap;
  paused?: boolean;
};

export type ScheduleChange = {
  interval?: number | null;
  after_completion?: boolean;
  cron?: string | null;
  timezone?: string | null;
  start_at?: string | null;
  end_at?: string | null;
  jitter_seconds?: number;
  type?: string;
  params?: Record<string, unknown>;
  queue?: string | null;
  priority?: number | null;
  retry_policy?: RetryKind | Retry | null;
  timeout_seconds?: number | null;
  tags?: (string)[];
  misfire?: Misfire;
  misfire_cap?: number;
  misfire_grace_seconds?: number;
  overlap?: Overlap;
  paused?: boolean;
};

export type ScheduleItem = {
  name: string;
  type: string;
  params: unknown;
  interval: number | null;
  after_completion: boolean;
  cron: string | null;
  timezone: string | null;
  start_at: string | null;
  end_at: string | null;
  jitter_seconds: number;
  queue: string | null;
  priority: number | null;
  retry_policy: Retry | null;
  timeout_seconds: number | null;
  tags: (string)[];
  misfire: Misfire;
  misfire_cap: number;
  misfire_grace_seconds: number;
  overlap: Overlap;
  paused: boolean;
  version: number;
  next_tick_at: string | null;
  last_tick_at: string | null;
  pending_tick_at: string | null;
  created_at: string;
  updated_at: string;
};

export type SchedulePage = {
  schedules: (ScheduleItem)[];
  cursor: string | null;
};

export type ScheduleRequest = {
  interval?: number | null;
  after_completion?: boolean;
  cron?: string | null;
  timezone?: string | null;
  start_at?: string | null;
  end_at?: string | null;
  jitter_seconds?: number;
  type: string;
  params?: Record<string, unknown>;
  queue?: string | null;
  priority?: number | null;
  retry_policy?: RetryKind | Retry | null;
  timeout_seconds?: number | null;
  tags?: (string)[];
  misfire?: Misfire;
  misfire_cap?: number;
  misfire_grace_seconds?: number;
  overlap?: Overlap;
  paused?: boolean;
  name: string;
  on_conflict?: OnConflict;
  code_age_seconds?: number | null;
};

export type SecretItem = {
  created_at: string;
  valid_until: string | null;
};

export type SessionItem = {
  scopes: (KeyScope)[];
  needs_key: boolean;
  version: string;
  key: string | null;
  name: string | null;
  expires_at: string | null;
  token: string | null;
};

export type SessionRequest = {
  scopes?: (KeyScope)[] | null;
};

export type SettleRequest = {
  outcomes: (Outcome)[];
};

export type SettleResponse = {
  refused: (Refusal)[];
};

export type ShardChange = {
  weight?: number;
  state?: ShardState;
  keyed?: boolean;
};

export type ShardItem = {
  number: number;
  url: string | null;
  weight: number;
  state: ShardState;
  keyed: boolean;
  well: boolean;
  since: string | null;
  reason: string | null;
  jobs: Record<string, number> | null;
};

export type ShardList = {
  shards: (ShardItem)[];
};

export type ShardRequest = {
  url: string;
  number?: number | null;
  weight?: number;
  state?: ShardState;
  keyed?: boolean;
};

export type ShardState = "active" | "down" | "draining";

export type SnsSink = {
  kind: "sns";
  topic: string;
};

export type State = "cancelled" | "expired" | "failed" | "queued" | "running" | "scheduled" | "succeeded";

export type Step = {
  above?: number;
  add?: number;
};

export type SubmitRequest = {
  type: string;
  params?: Record<string, unknown>;
  queue?: string | null;
  priority?: number | null;
  delay_seconds?: number | null;
  scheduled_at?: string | null;
  interval?: number | null;
  retry_policy?: RetryKind | Retry | null;
  timeout_seconds?: number | null;
  expires_at?: string | null;
  tags?: (string)[];
  inputs?: Record<string, string>;
  idempotency_key?: string | null;
};

export type SubscriptionChange = {
  sink?: WebhookSink | SnsSink;
  filter?: FilterChange;
  include?: EventContent;
  batch?: number;
  limits?: LimitsChange;
};

export type SubscriptionItem = {
  name: string;
  state: SubscriptionState;
  reason: string | null;
  sink: WebhookSink | SnsSink;
  filter: EventFilter;
  include: EventContent;
  batch: number;
  limits: DeliveryLimits;
  secrets: (SecretItem)[];
  source: SubscriptionSource;
  created_at: string;
  changed_at: string;
};

export type SubscriptionList = {
  subscriptions: (SubscriptionItem)[];
};

export type SubscriptionReport = {
  name: string;
  state: SubscriptionState;
  reason: string | null;
  sink: WebhookSink | SnsSink;
  filter: EventFilter;
  include: EventContent;
  batch: number;
  limits: DeliveryLimits;
  secrets: (SecretItem)[];
  source: SubscriptionSource;
  created_at: string;
  changed_at: string;
  relays: (RelayItem)[];
  missing_shards: (number)[];
};

export type SubscriptionRequest = {
  name: string;
  sink: WebhookSink | SnsSink;
  filter?: FilterRequest;
  include?: EventContent;
  batch?: number;
  limits?: DeliveryLimits;
  secret?: string | null;
};

export type SubscriptionSource = "api" | "removed" | "settings";

export type SubscriptionState = "active" | "disabled" | "paused";

export type TestOutcome = {
  event: string;
  delivered: boolean;
  status: number | null;
  detail: string | null;
  took_seconds: number;
};

export type TickItem = {
  at: string;
  job: string | null;
  skipped: string | null;
};

export type TickPage = {
  ticks: (TickItem)[];
  cursor: string | null;
};

export type TickRequest = {
  decisions: (Decision)[];
};

export type TickResponse = {
  applied: (boolean)[];
};

export type TypeItem = {
  name: string;
  queue: string;
  kind: HandlerKind;
  priority: number;
  retry: Retry;
  timeout_seconds: number | null;
  params_schema: Record<string, unknown> | null;
  description: string | null;
  fleet: Fleet | null;
  declared_at: string;
  signature: string;
  aliases: (string)[];
  run_as: string | null;
};

export type TypeList = {
  types: (TypeItem)[];
};

export type Upload = {
  id: string;
  size: number;
  digest: string;
  content_type: string;
};

export type UploadRequest = {
  digest: string;
  size: number;
  content_type?: string;
};

export type Verdict = {
  at: string;
  skipped?: string | null;
};

export type Wait = {
  type: "wait";
  target_seconds?: number | string;
};

export type WebhookSink = {
  kind: "webhook";
  url: string;
};

export type Worker = {
  id: string;
  host: string;
  pid: number;
  version: string;
  app?: string | null;
  types: (string)[];
  signatures?: Record<string, string>;
  queues?: (string)[] | null;
  except_queues?: (string)[];
  capacity: number;
  running?: number;
  state?: WorkerState;
  started_at: string;
  code_age_seconds?: number;
  seen_at?: string | null;
};

export type WorkerList = {
  workers: (Worker)[];
};

export type WorkerState = "draining" | "lost" | "ready";
