/** The scripts that the form offers to try, one a framework. */

import pytorch from "./example/digits.py?raw";
import tensorflow from "./example/digits_tensorflow.py?raw";

const SCRIPTS: Readonly<Record<string, string>> = { edtPyTorch: pytorch, edtTensorflow: tensorflow };

/** The example as a file; null: there is none for this framework. */
export function exampleFile(framework: string): File | null {
  const script = SCRIPTS[framework];
  return script === undefined ? null : new File([script], "digits.py", { type: "text/x-python", lastModified: 0 });
}
