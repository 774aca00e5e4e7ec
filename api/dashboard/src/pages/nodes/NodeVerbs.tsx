/** Cordon, uncordon, drain, remove: the buttons, which admins alone see, and the question before each. */

import { useNavigate } from "react-router";

import { type NodeVerb, useNodeVerb } from "../../api/nodes";
import { useIsAdmin } from "../../api/session";
import type { Node } from "../../api/types";
import { jobClass } from "../../charts/palette";
import { Button } from "../../components/Button";
import { Confirm } from "../../components/Dialog";
import { plural } from "../../components/format";
import { toast } from "../../components/toasts";
import styles from "./Nodes.module.css";
import { holders, whatHappens } from "./occupancy";

export const VERBS: Readonly<Record<NodeVerb, { word: string; done: string }>> = {
  cordon: { word: "Cordon", done: "is cordoned" },
  uncordon: { word: "Uncordon", done: "is used again" },
  drain: { word: "Drain", done: "is being drained" },
  remove: { word: "Remove", done: "is removed" },
};

export function isVerb(word: string | undefined): word is NodeVerb {
  return word !== undefined && word in VERBS;
}

const isHard = (verb: NodeVerb): boolean => verb === "drain" || verb === "remove";

/** What can be asked of a node as it is. */
function possible(node: Node): readonly NodeVerb[] {
  if (node.health === "up") return ["cordon", "drain"];
  if (node.health === "cordoned") return ["uncordon", "drain"];
  return node.health === "draining" ? ["uncordon"] : ["remove"];
}

export function NodeVerbs({ node }: { readonly node: Node }) {
  const admin = useIsAdmin();
  const navigate = useNavigate();
  if (!admin) return null;
  return (
    <span className={styles.verbs}>
      {possible(node).map((verb) => (
        <Button
          key={verb} size="small" look={isHard(verb) ? "danger" : "plain"} aria-label={`${VERBS[verb].word} ${node.name}`}
          onClick={() => void navigate(`/nodes/${encodeURIComponent(node.name)}/${verb}`)}
        >
          {VERBS[verb].word}
        </Button>
      ))}
    </span>
  );
}

/** The question before a verb. It has an address of its own, so that it can be sent to a colleague. */
export function VerbDialog({ node, verb }: { readonly node: Node; readonly verb: NodeVerb }) {
  const navigate = useNavigate();
  const { mutateAsync, isPending } = useNodeVerb();
  const close = (): void => void navigate("/nodes", { replace: true });
  // Not as callbacks of mutate: a removed node takes this dialog along, and then they would not be called.
  const act = (): void =>
    void mutateAsync({ name: node.name, verb }).then(
      () => {
        toast.say(`${node.name} ${VERBS[verb].done}`);
        close();
      },
      (error: unknown) => toast.problem(error),
    );
  const on = verb === "uncordon" ? [] : holders(node);
  return (
    <Confirm
      title={`${VERBS[verb].word} ${node.name}?`} action={VERBS[verb].word} danger={isHard(verb)} busy={isPending}
      onConfirm={act} onClose={close}
    >
      <p>{whatHappens(verb, node)}</p>
      {on.length > 0 && (
        <ul className={styles.concerned} aria-label="Jobs on this node">
          {on.map((each) => (
            <li key={each.execId}>
              <i className={`job-swatch ${jobClass(each.execId)}`} />
              <span>{each.execId}</span>
              <span className="quiet num">{plural(each.slots, "slot")}{each.leaving > 0 ? `, ${each.leaving} leaving` : ""}</span>
            </li>
          ))}
        </ul>
      )}
    </Confirm>
  );
}
