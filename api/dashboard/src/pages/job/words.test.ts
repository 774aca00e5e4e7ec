import { describe, expect, it } from "vitest";

import { metricWord, otherMetrics } from "./words";

describe("metrics by name", () => {
  it("are written as people write", () => {
    expect(metricWord("gradient_noise_scale")).toBe("Gradient noise scale");
    expect(metricWord("accuracy")).toBe("Accuracy");
    expect(metricWord("")).toBe("");
  });

  it("leave out the loss, which stands for itself", () => {
    expect(otherMetrics({ loss: 1, Loss: 2, accuracy: 3 })).toEqual([["accuracy", 3]]);
  });
});
