/** Who is logged in, as what, and the way out. */

import { useQueryClient } from "@tanstack/react-query";
import { ChevronDown, CircleUserRound, LogOut, ShieldCheck } from "lucide-react";
import { useNavigate } from "react-router";

import { logOut, useMe } from "../api/session";
import { Button } from "../components/Button";
import { Menu, MenuItem, MenuLine, MenuText } from "../components/Menu";
import { toast } from "../components/toasts";
import styles from "./UserMenu.module.css";

export function UserMenu() {
  const me = useMe();
  const queries = useQueryClient();
  const navigate = useNavigate();
  const leave = async () => {
    try {
      await logOut(queries);
      await navigate("/login"); // whoever comes next begins at the front page
    } catch (error) {
      toast.problem(error);
    }
  };
  return (
    <Menu
      trigger={
        <Button look="ghost" icon={CircleUserRound}>
          <span className="visually-hidden">Account: </span>
          <span className={styles.name}>{me.name}</span>
          {me.role === "admin" && <span className={styles.role}>admin</span>}
          <ChevronDown size={14} aria-hidden />
        </Button>
      }
    >
      <MenuText>
        <strong>{me.name}</strong>
        <span className={styles.line}>
          <ShieldCheck size={13} aria-hidden />
          {me.role === "admin" ? "Admin: sees every job, runs the nodes" : "User: sees and stops their own jobs"}
        </span>
        <span className={styles.line}>OpenEDT {me.version}</span>
      </MenuText>
      <MenuLine />
      <MenuItem icon={LogOut} onSelect={() => void leave()}>
        Log out
      </MenuItem>
    </Menu>
  );
}
