/* How numbers are written: the same as eligibility/explanation/wording.py. */

/** A value in at most four significant digits, as in a sentence. */
function number(value) {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  if (value === 0) return "0";
  const [digits, exponent] = value.toExponential(3).split("e");
  const power = Number(exponent);
  if (power < -4 || power >= 4) {
    const size = String(Math.abs(power)).padStart(2, "0");
    return `${trimmed(digits)}e${power < 0 ? "-" : "+"}${size}`;
  }
  return trimmed(value.toFixed(3 - power));
}

/** A deviation in two significant digits: ``3.7e-11``. */
function scientific(value) {
  if (!Number.isFinite(value)) return number(value).toLowerCase();
  const [digits, exponent] = value.toExponential(1).split("e");
  return `${digits}e${exponent[0]}${exponent.slice(1).padStart(2, "0")}`;
}

function trimmed(digits) {
  return digits.includes(".") ? digits.replace(/\.?0+$/, "") : digits;
}

/** A value in a table: four decimals where they show the number. */
function cell(value) {
  if (value === null) return "";
  if (value === 0) return "0.0000";
  const size = Math.abs(value);
  return size >= 1e-3 && size < 1e5 ? value.toFixed(4) : number(value);
}

function vector(values) {
  return `[${values.map(number).join(" ")}]`;
}

/** All values if they are few, else their shape and range. */
function summary(values, shape, most = 8) {
  if (values.length <= most) return shape.length ? vector(values) : number(values[0]);
  const size = shape.join("×");
  const [low, high] = [Math.min(...values), Math.max(...values)];
  if (low === high) return `${size} numbers, each ${number(low)}`;
  return `${size} numbers from ${number(low)} to ${number(high)}`;
}

const sum = (values) => values.reduce((total, value) => total + value, 0);
