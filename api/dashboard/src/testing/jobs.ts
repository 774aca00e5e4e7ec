/** Jobs and what belongs to them, for tests: whole, with only what matters said. */

import type { Allocation, Event, Job, JobPage, Resize } from "../api/types";

export function job(number: number, values: Partial<Job> = {}): Job {
  return {
    id: `edt-${number}`,
    owner: "ana",
    owner_removed: false,
    state: "RUNNING",
    status: "running",
    kind: "elastic",
    processes: null,
    framework: "edtPyTorch",
    app_name: "digits",
    args: "--exec-start edtPyTorch",
    options: [{ name: "--exec-start", values: ["edtPyTorch"], effect: true }],
    remark: null,
    num_worker: 4,
    worker_device_num: 1,
    max_workers: 4,
    min_workers: 1,
    sizes: [],
    queue: "",
    priority: 1,
    after: [],
    deadline: null,
    time_limit: null,
    gpu_models: [],
    max_restarts: 0,
    restarts: 0,
    created_at: 1000,
    started_at: 1001,
    finished_at: null,
    stop_requested_at: null,
    paused_at: null,
    paused_by: null,
    wanted_epochs: null,
    resumed_from: null,
    resumed_step: null,
    kept: null,
    attempts: 1,
    engines: 4,
    steps_total: 100,
    epochs: 10,
    slots: 1,
    workers: 1,
    progress: {},
    efficiency: null,
    mean_samples_per_second: null,
    validation: null,
    best: {},
    best_model: null,
    main_metric: null,
    share_done: null,
    ended_early: null,
    eta_seconds: null,
    message: null,
    digest: null,
    exactness: { verdict: "not-compared", reason: "It has not trained yet.", comparisons: 0, compared_step: null },
    checkpoint_step: null,
    seed: 7,
    threads: 1,
    waiting: null,
    work_dir: "/jobs",
    image: null,
    results_removed_at: null,
    results_days: null,
    results_removed: null,
    ...values,
  };
}

export function pageOf(numbers: readonly number[], values: Partial<JobPage> = {}): JobPage {
  return { items: numbers.map((number) => job(number)), next: null, total: numbers.length, ...values };
}

export function event(seq: number, kind: string, values: Partial<Event> = {}): Event {
  return { seq, time: 1000 + seq, kind, fence: 1, message: kind, data: {}, ...values };
}

export function allocation(number: number, values: Partial<Allocation> = {}): Allocation {
  return {
    allocation: number,
    exec_id: "edt-1",
    fence: 1,
    node: "n1",
    slot: "0",
    decided_at: 1000,
    started_at: null,
    joined_at: null,
    counted_at: null,
    release_asked_at: null,
    released_at: null,
    kind: null,
    ...values,
  };
}

export function resize(number: number, values: Partial<Resize> = {}): Resize {
  return {
    number,
    exec_id: "edt-1",
    fence: 1,
    cause: "slots-free",
    detail: "",
    from_slots: 1,
    to_slots: 2,
    decided_at: 1000,
    notified_at: null,
    woken_by: null,
    woken_at: null,
    started_at: null,
    joined_at: null,
    first_step_at: null,
    gone_at: null,
    generation: null,
    step: null,
    workers: null,
    pause_seconds: null,
    recomputed: null,
    ...values,
  };
}
