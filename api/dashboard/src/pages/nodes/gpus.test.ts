import { describe, expect, it } from "vitest";

import { deviceName, devices, troubles } from "./gpus";

const whole = { slot: "0", device: "GPU-a", model: "NVIDIA H200", memory_total_bytes: 140 * 1024 ** 3 };
const part = { slot: "1:0", device: "MIG-b", model: "NVIDIA H200", mig_profile: "1g.18gb", memory_total_bytes: 16 * 1024 ** 3 };

describe("a node's devices", () => {
  it("are counted by model, memory and profile", () => {
    expect(devices([whole, { ...whole, slot: "1" }, part])).toEqual(["2 × NVIDIA H200 (140 GiB)", "1 × NVIDIA H200 MIG 1g.18gb (16 GiB)"]);
    expect(devices([{ slot: "0", device: "cpu", memory_total_bytes: null }, { slot: "1", device: "cpu" }])).toEqual(["2 × CPU stand-in"]);
  });

  it("have the label of an older agent where the model is not known", () => {
    expect(deviceName({ slot: "0", device: "GPU-a", label: "NVIDIA A100" })).toBe("NVIDIA A100");
  });
});

describe("what is wrong with a GPU", () => {
  it("is said in a sentence for each", () => {
    expect(troubles(whole)).toEqual([]);
    expect(troubles({ ...whole, ecc_errors: 1, foreign_processes: [{ pid: 7, name: "game" }, { pid: 8, name: "" }] })).toEqual([
      "GPU 0 had 1 error in its memory that could not be corrected.",
      "GPU 0 is also used by game (pid 7), a process (pid 8), which belong to no job.",
    ]);
    expect(troubles({ ...part, problem: "NVML says 'GPU is lost'" })).toEqual(["GPU 1:0 does not answer: NVML says 'GPU is lost'."]);
  });
});
