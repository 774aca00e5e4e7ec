import { expect, it } from "vitest";

import pytorch from "../../../../../examples/digits/main.py?raw";
import tensorflow from "../../../../../examples/digits_tensorflow/main.py?raw";
import { exampleFile } from "./examples";

it.each([["edtPyTorch", pytorch], ["edtTensorflow", tensorflow]])("the example that the form offers for %s is the one of examples/", async (framework, original) => {
  expect(await exampleFile(framework)?.text()).toBe(original);
});

it("there is no example for a framework of tomorrow", () => {
  expect(exampleFile("edtJax")).toBeNull();
});
