/** Chooses light, dark or the system's theme. */

import { Monitor, Moon, Sun } from "lucide-react";

import { Menu, MenuChoice } from "../components/Menu";
import { Button } from "../components/Button";
import { setTheme, type ThemeChoice, useTheme, useThemeChoice } from "./theme";

const CHOICES: readonly { value: ThemeChoice; label: string; icon: typeof Sun }[] = [
  { value: "light", label: "Light", icon: Sun },
  { value: "dark", label: "Dark", icon: Moon },
  { value: "system", label: "System", icon: Monitor },
];

export function ThemeControl() {
  const choice = useThemeChoice();
  const Icon = useTheme() === "dark" ? Moon : Sun;
  return (
    <Menu
      trigger={
        <Button look="ghost" icon={Icon} aria-label="Theme" title="Theme" />
      }
    >
      <MenuChoice value={choice} onChange={(value) => setTheme(value as ThemeChoice)} choices={CHOICES} />
    </Menu>
  );
}
