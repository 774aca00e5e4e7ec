/* Makes src/api/schema.d.ts of openapi.json, and writes on its first line of which one: a test looks whether it is the newest. */

import { createHash } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";

import openapiTS, { astToString } from "openapi-typescript";

const spec = await readFile(new URL("../openapi.json", import.meta.url));
const types = astToString(await openapiTS(JSON.parse(spec.toString()), { alphabetize: true }));
const line = `// openapi.json sha256: ${createHash("sha256").update(spec).digest("hex")}\n`;
await writeFile(new URL("../src/api/schema.d.ts", import.meta.url), line + types);
