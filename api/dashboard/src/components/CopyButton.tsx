/** Copies a text, and says that it did. */

import { Check, Copy } from "lucide-react";
import { useEffect, useState } from "react";

import { Button } from "./Button";
import { toast } from "./toasts";

export function CopyButton({ text, label }: { readonly text: string; readonly label: string }) {
  const [done, setDone] = useState(false);
  useEffect(() => {
    if (!done) return;
    const timer = window.setTimeout(() => setDone(false), 1_600);
    return () => window.clearTimeout(timer);
  }, [done]);
  const copy = async () => {
    try {
      await write(text);
      setDone(true);
    } catch {
      toast.say("The browser does not let this page copy. Select the text instead.");
    }
  };
  return (
    <>
      <Button
        look="ghost"
        size="small"
        icon={done ? Check : Copy}
        aria-label={label}
        title={label}
        onClick={() => void copy()}
      />
      <span role="status" className="visually-hidden">
        {done ? "Copied" : ""}
      </span>
    </>
  );
}

/** Pages that did not come by https have no clipboard of their own; there the old way serves. */
async function write(text: string): Promise<void> {
  if (window.isSecureContext) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "heard";
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  if (!copied) throw new Error("not copied");
}
