/** The same as a command, live beside the form. */

import { useSearchParams } from "react-router";

import { useMe } from "../../api/session";
import { Command } from "../../components/Command";
import { Panel } from "../../components/Panel";
import { Tabs } from "../../components/Tabs";
import type { Code } from "./code/code";
import { curlCommand, edtCommand } from "./commands";
import { type Form, setVariables } from "./form";
import styles from "./Submit.module.css";

const TABS = [
  { value: "edt", label: "edt" },
  { value: "curl", label: "curl" },
];

export function Commands({ form, code }: { readonly form: Form; readonly code: Code | null }) {
  const [search, setSearch] = useSearchParams();
  const me = useMe();
  const chosen = search.get("as") === "curl" ? "curl" : "edt";
  const where = { origin: location.origin, user: me.name };
  const secrets = setVariables(form).map(({ name }) => `$${name}`);
  return (
    <Panel title="The same as a command">
      <div className={styles.commands}>
        <Tabs
          label="Command" small tabs={TABS} value={chosen}
          onChange={(value) => setSearch(value === "edt" ? {} : { as: value }, { replace: true })}
        >
          <Command text={chosen === "edt" ? edtCommand(form, code) : curlCommand(form, code, where)} />
        </Tabs>
        {secrets.length > 0 && (
          <p className={styles.note}>
            {secrets.length === 1 ? "The value of" : "The values of"} {secrets.join(", ")} {secrets.length === 1 ? "comes" : "come"} from your
            shell{chosen === "curl" ? ", and must hold no quotes and backslashes" : ""}.
          </p>
        )}
        <p className={styles.note}>
          {chosen === "edt" ? <>Log in once with <code>edt --api {location.origin} login</code>.</> : "curl asks for your password."}{" "}
          <a href="/ui/tools/dlicmd.py" download>dlicmd.py</a> is WMLA's command; it needs only Python.
        </p>
      </div>
    </Panel>
  );
}
