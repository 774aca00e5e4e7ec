/** Logging in with a name and a password. Goes back to where one was sent from. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Eye, EyeOff, LogIn } from "lucide-react";
import { type FormEvent, useId, useState } from "react";
import { Navigate, useNavigate, useSearchParams } from "react-router";

import { asProblem, type Problem } from "../../api/problem";
import { logIn, meQuery, returnPath } from "../../api/session";
import { Mark } from "../../app/Mark";
import { ThemeControl } from "../../app/ThemeControl";
import { Button } from "../../components/Button";
import { Frame, TextField } from "../../components/Field";
import { useTabTitle } from "../../components/Page";
import field from "../../components/Field.module.css";
import styles from "./LoginPage.module.css";
import { Steps } from "./Steps";

export function LoginPage() {
  useTabTitle("Log in");
  const queries = useQueryClient();
  const navigate = useNavigate();
  const [search] = useSearchParams();
  const next = returnPath(search.get("next"));
  const me = useQuery(meQuery);
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);

  if (me.data && !busy) return <Navigate to={next} replace />;

  const enter = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setProblem(null);
    try {
      await logIn(queries, name.trim(), password);
      await navigate(next, { replace: true });
    } catch (error) {
      setProblem(asProblem(error));
    } finally {
      setBusy(false);
    }
  };

  return (
    <div className={styles.page}>
      <div className={styles.theme}>
        <ThemeControl />
      </div>
      <main className={styles.main}>
        <div className={styles.card}>
          <Steps />
          <h1>
            <Mark /> Log in to OpenEDT
          </h1>
          <p className={styles.where}>Elastic training at {location.host}</p>
          <form onSubmit={(event) => void enter(event)} className={styles.form}>
            <TextField
              label="Name"
              name="username"
              autoComplete="username"
              autoCapitalize="none"
              spellCheck={false}
              autoFocus
              required
              value={name}
              onChange={(event) => setName(event.target.value)}
            />
            <Password value={password} onChange={setPassword} />
            {problem && (
              <p role="alert" className={styles.problem}>
                {sentence(problem)}
              </p>
            )}
            <Button type="submit" look="primary" icon={LogIn} busy={busy} className={styles.enter}>
              Log in
            </Button>
          </form>
        </div>
        <p className={styles.foot}>
          The first admin’s password is the one that <code>edt up</code> printed. Others are added with{" "}
          <code>edt users add NAME</code>.
        </p>
      </main>
    </div>
  );
}

function Password({ value, onChange }: { readonly value: string; readonly onChange: (value: string) => void }) {
  const id = useId();
  const [shown, setShown] = useState(false);
  return (
    <Frame id={id} label="Password">
      <div className={styles.password}>
        <input
          id={id}
          className={field.input}
          type={shown ? "text" : "password"}
          name="password"
          autoComplete="current-password"
          required
          value={value}
          onChange={(event) => onChange(event.target.value)}
        />
        <Button
          look="ghost"
          size="small"
          icon={shown ? EyeOff : Eye}
          aria-label={shown ? "Hide what is typed" : "Show what is typed"}
          onClick={() => setShown(!shown)}
        />
      </div>
    </Frame>
  );
}

function sentence(problem: Problem): string {
  if (problem.status === 401) return "No user has this name and password.";
  return problem.detail === "" ? problem.title : `${problem.title}: ${problem.detail}`;
}
