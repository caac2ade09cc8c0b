;; Products, softmax and the attention of one query, on four numbers at a time.
;;
;; Addresses count bytes. A matrix has R rows of C numbers without gaps; int8 rows have one scale each.
;; kernels.wasm is made by: wat2wasm kernels.wat -o kernels.wasm
(module
  (memory (export "memory") 1)

  ;; The sum of four numbers.
  (func $sum (param $v v128) (result f32)
    (f32.add
      (f32.add (f32x4.extract_lane 0 (local.get $v)) (f32x4.extract_lane 1 (local.get $v)))
      (f32.add (f32x4.extract_lane 2 (local.get $v)) (f32x4.extract_lane 3 (local.get $v)))))

  ;; sum + a . b over n numbers, one by one: what four at a time leave over.
  (func $rest (param $a i32) (param $b i32) (param $n i32) (param $sum f32) (result f32)
    (block $done
      (loop $next
        (br_if $done (i32.le_s (local.get $n) (i32.const 0)))
        (local.set $sum (f32.add (local.get $sum)
          (f32.mul (f32.load (local.get $a)) (f32.load (local.get $b)))))
        (local.set $a (i32.add (local.get $a) (i32.const 4)))
        (local.set $b (i32.add (local.get $b) (i32.const 4)))
        (local.set $n (i32.sub (local.get $n) (i32.const 1)))
        (br $next)))
    (local.get $sum))

  ;; The same where a holds int8.
  (func $rest8 (param $a i32) (param $b i32) (param $n i32) (param $sum f32) (result f32)
    (block $done
      (loop $next
        (br_if $done (i32.le_s (local.get $n) (i32.const 0)))
        (local.set $sum (f32.add (local.get $sum)
          (f32.mul (f32.convert_i32_s (i32.load8_s (local.get $a))) (f32.load (local.get $b)))))
        (local.set $a (i32.add (local.get $a) (i32.const 1)))
        (local.set $b (i32.add (local.get $b) (i32.const 4)))
        (local.set $n (i32.sub (local.get $n) (i32.const 1)))
        (br $next)))
    (local.get $sum))

  ;; One row times one vector.
  (func $one (param $w i32) (param $x i32) (param $C i32) (result f32)
    (local $s v128) (local $n i32)
    (local.set $n (i32.and (local.get $C) (i32.const -4)))
    (local.set $C (i32.and (local.get $C) (i32.const 3)))
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $n)))
        (local.set $s (f32x4.add (local.get $s)
          (f32x4.mul (v128.load (local.get $w)) (v128.load (local.get $x)))))
        (local.set $w (i32.add (local.get $w) (i32.const 16)))
        (local.set $x (i32.add (local.get $x) (i32.const 16)))
        (local.set $n (i32.sub (local.get $n) (i32.const 4)))
        (br $next)))
    (call $rest (local.get $w) (local.get $x) (local.get $C) (call $sum (local.get $s))))

  ;; Four rows times two vectors x and z, into y and u. For one vector, z is x and u is y.
  (func $four (param $w i32) (param $x i32) (param $z i32) (param $y i32) (param $u i32) (param $C i32)
    (local $w1 i32) (local $w2 i32) (local $w3 i32) (local $n i32) (local $row v128)
    (local $a v128) (local $b v128) (local $a0 v128) (local $a1 v128) (local $a2 v128) (local $a3 v128)
    (local $b0 v128) (local $b1 v128) (local $b2 v128) (local $b3 v128)
    (local.set $w1 (i32.add (local.get $w) (i32.shl (local.get $C) (i32.const 2))))
    (local.set $w2 (i32.add (local.get $w1) (i32.shl (local.get $C) (i32.const 2))))
    (local.set $w3 (i32.add (local.get $w2) (i32.shl (local.get $C) (i32.const 2))))
    (local.set $n (i32.and (local.get $C) (i32.const -4)))
    (local.set $C (i32.and (local.get $C) (i32.const 3)))
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $n)))
        (local.set $a (v128.load (local.get $x)))
        (local.set $b (v128.load (local.get $z)))
        (local.set $row (v128.load (local.get $w)))
        (local.set $a0 (f32x4.add (local.get $a0) (f32x4.mul (local.get $row) (local.get $a))))
        (local.set $b0 (f32x4.add (local.get $b0) (f32x4.mul (local.get $row) (local.get $b))))
        (local.set $row (v128.load (local.get $w1)))
        (local.set $a1 (f32x4.add (local.get $a1) (f32x4.mul (local.get $row) (local.get $a))))
        (local.set $b1 (f32x4.add (local.get $b1) (f32x4.mul (local.get $row) (local.get $b))))
        (local.set $row (v128.load (local.get $w2)))
        (local.set $a2 (f32x4.add (local.get $a2) (f32x4.mul (local.get $row) (local.get $a))))
        (local.set $b2 (f32x4.add (local.get $b2) (f32x4.mul (local.get $row) (local.get $b))))
        (local.set $row (v128.load (local.get $w3)))
        (local.set $a3 (f32x4.add (local.get $a3) (f32x4.mul (local.get $row) (local.get $a))))
        (local.set $b3 (f32x4.add (local.get $b3) (f32x4.mul (local.get $row) (local.get $b))))
        (local.set $w (i32.add (local.get $w) (i32.const 16)))
        (local.set $w1 (i32.add (local.get $w1) (i32.const 16)))
        (local.set $w2 (i32.add (local.get $w2) (i32.const 16)))
        (local.set $w3 (i32.add (local.get $w3) (i32.const 16)))
        (local.set $x (i32.add (local.get $x) (i32.const 16)))
        (local.set $z (i32.add (local.get $z) (i32.const 16)))
        (local.set $n (i32.sub (local.get $n) (i32.const 4)))
        (br $next)))
    (f32.store (local.get $y)
      (call $rest (local.get $w) (local.get $x) (local.get $C) (call $sum (local.get $a0))))
    (f32.store offset=4 (local.get $y)
      (call $rest (local.get $w1) (local.get $x) (local.get $C) (call $sum (local.get $a1))))
    (f32.store offset=8 (local.get $y)
      (call $rest (local.get $w2) (local.get $x) (local.get $C) (call $sum (local.get $a2))))
    (f32.store offset=12 (local.get $y)
      (call $rest (local.get $w3) (local.get $x) (local.get $C) (call $sum (local.get $a3))))
    (f32.store (local.get $u)
      (call $rest (local.get $w) (local.get $z) (local.get $C) (call $sum (local.get $b0))))
    (f32.store offset=4 (local.get $u)
      (call $rest (local.get $w1) (local.get $z) (local.get $C) (call $sum (local.get $b1))))
    (f32.store offset=8 (local.get $u)
      (call $rest (local.get $w2) (local.get $z) (local.get $C) (call $sum (local.get $b2))))
    (f32.store offset=12 (local.get $u)
      (call $rest (local.get $w3) (local.get $z) (local.get $C) (call $sum (local.get $b3)))))

  ;; Four rows times one vector, into y: what is written one token at a time.
  (func $single (param $w i32) (param $x i32) (param $y i32) (param $C i32)
    (local $w1 i32) (local $w2 i32) (local $w3 i32) (local $n i32) (local $a v128)
    (local $a0 v128) (local $a1 v128) (local $a2 v128) (local $a3 v128)
    (local.set $w1 (i32.add (local.get $w) (i32.shl (local.get $C) (i32.const 2))))
    (local.set $w2 (i32.add (local.get $w1) (i32.shl (local.get $C) (i32.const 2))))
    (local.set $w3 (i32.add (local.get $w2) (i32.shl (local.get $C) (i32.const 2))))
    (local.set $n (i32.and (local.get $C) (i32.const -4)))
    (local.set $C (i32.and (local.get $C) (i32.const 3)))
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $n)))
        (local.set $a (v128.load (local.get $x)))
        (local.set $a0 (f32x4.add (local.get $a0) (f32x4.mul (v128.load (local.get $w)) (local.get $a))))
        (local.set $a1 (f32x4.add (local.get $a1) (f32x4.mul (v128.load (local.get $w1)) (local.get $a))))
        (local.set $a2 (f32x4.add (local.get $a2) (f32x4.mul (v128.load (local.get $w2)) (local.get $a))))
        (local.set $a3 (f32x4.add (local.get $a3) (f32x4.mul (v128.load (local.get $w3)) (local.get $a))))
        (local.set $w (i32.add (local.get $w) (i32.const 16)))
        (local.set $w1 (i32.add (local.get $w1) (i32.const 16)))
        (local.set $w2 (i32.add (local.get $w2) (i32.const 16)))
        (local.set $w3 (i32.add (local.get $w3) (i32.const 16)))
        (local.set $x (i32.add (local.get $x) (i32.const 16)))
        (local.set $n (i32.sub (local.get $n) (i32.const 4)))
        (br $next)))
    (f32.store (local.get $y)
      (call $rest (local.get $w) (local.get $x) (local.get $C) (call $sum (local.get $a0))))
    (f32.store offset=4 (local.get $y)
      (call $rest (local.get $w1) (local.get $x) (local.get $C) (call $sum (local.get $a1))))
    (f32.store offset=8 (local.get $y)
      (call $rest (local.get $w2) (local.get $x) (local.get $C) (call $sum (local.get $a2))))
    (f32.store offset=12 (local.get $y)
      (call $rest (local.get $w3) (local.get $x) (local.get $C) (call $sum (local.get $a3)))))

  ;; y[t, r] = w[r] . x[t] for T vectors and R rows: two vectors at a time share what is read of w.
  (func $product (export "product")
    (param $w i32) (param $x i32) (param $y i32) (param $R i32) (param $C i32) (param $T i32)
    (local $r i32) (local $t i32) (local $width i32) (local $out i32) (local $at i32) (local $to i32)
    (local.set $width (i32.shl (local.get $C) (i32.const 2)))
    (local.set $out (i32.shl (local.get $R) (i32.const 2)))
    (block $rows
      (loop $row
        (br_if $rows (i32.ge_s (local.get $r) (local.get $R)))
        (local.set $t (local.get $T))
        (local.set $at (local.get $x))
        (local.set $to (local.get $y))
        (block $tokens
          (loop $token
            (br_if $tokens (i32.le_s (local.get $t) (i32.const 0)))
            (if (i32.lt_s (i32.sub (local.get $R) (local.get $r)) (i32.const 4))
              (then
                (f32.store (local.get $to) (call $one (local.get $w) (local.get $at) (local.get $C)))
                (local.set $t (i32.sub (local.get $t) (i32.const 1)))
                (local.set $at (i32.add (local.get $at) (local.get $width)))
                (local.set $to (i32.add (local.get $to) (local.get $out))))
              (else
                (if (i32.eq (local.get $t) (i32.const 1))
                  (then
                    (call $single (local.get $w) (local.get $at) (local.get $to) (local.get $C))
                    (local.set $t (i32.const 0)))
                  (else
                    (call $four (local.get $w)
                      (local.get $at) (i32.add (local.get $at) (local.get $width))
                      (local.get $to) (i32.add (local.get $to) (local.get $out)) (local.get $C))
                    (local.set $t (i32.sub (local.get $t) (i32.const 2)))
                    (local.set $at (i32.add (local.get $at) (i32.shl (local.get $width) (i32.const 1))))
                    (local.set $to (i32.add (local.get $to) (i32.shl (local.get $out) (i32.const 1))))))))
            (br $token)))
        (if (i32.lt_s (i32.sub (local.get $R) (local.get $r)) (i32.const 4))
          (then
            (local.set $r (i32.add (local.get $r) (i32.const 1)))
            (local.set $w (i32.add (local.get $w) (local.get $width)))
            (local.set $y (i32.add (local.get $y) (i32.const 4))))
          (else
            (local.set $r (i32.add (local.get $r) (i32.const 4)))
            (local.set $w (i32.add (local.get $w) (i32.shl (local.get $width) (i32.const 2))))
            (local.set $y (i32.add (local.get $y) (i32.const 16)))))
        (br $row))))

  ;; Two int8 rows times two vectors x and z, into y and u, with the rows' scales at s.
  (func $pair8 (param $w i32) (param $v i32) (param $s i32)
    (param $x i32) (param $z i32) (param $y i32) (param $u i32) (param $C i32)
    (local $n i32) (local $half v128) (local $low v128) (local $high v128)
    (local $a v128) (local $b v128) (local $c v128) (local $d v128)
    (local $a0 v128) (local $a1 v128) (local $b0 v128) (local $b1 v128)
    (local.set $n (i32.and (local.get $C) (i32.const -8)))
    (local.set $C (i32.and (local.get $C) (i32.const 7)))
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $n)))
        (local.set $a (v128.load (local.get $x)))
        (local.set $b (v128.load offset=16 (local.get $x)))
        (local.set $c (v128.load (local.get $z)))
        (local.set $d (v128.load offset=16 (local.get $z)))
        (local.set $half (v128.load8x8_s (local.get $w)))
        (local.set $low (f32x4.convert_i32x4_s (i32x4.extend_low_i16x8_s (local.get $half))))
        (local.set $high (f32x4.convert_i32x4_s (i32x4.extend_high_i16x8_s (local.get $half))))
        (local.set $a0 (f32x4.add (f32x4.add (local.get $a0) (f32x4.mul (local.get $low) (local.get $a)))
          (f32x4.mul (local.get $high) (local.get $b))))
        (local.set $b0 (f32x4.add (f32x4.add (local.get $b0) (f32x4.mul (local.get $low) (local.get $c)))
          (f32x4.mul (local.get $high) (local.get $d))))
        (local.set $half (v128.load8x8_s (local.get $v)))
        (local.set $low (f32x4.convert_i32x4_s (i32x4.extend_low_i16x8_s (local.get $half))))
        (local.set $high (f32x4.convert_i32x4_s (i32x4.extend_high_i16x8_s (local.get $half))))
        (local.set $a1 (f32x4.add (f32x4.add (local.get $a1) (f32x4.mul (local.get $low) (local.get $a)))
          (f32x4.mul (local.get $high) (local.get $b))))
        (local.set $b1 (f32x4.add (f32x4.add (local.get $b1) (f32x4.mul (local.get $low) (local.get $c)))
          (f32x4.mul (local.get $high) (local.get $d))))
        (local.set $w (i32.add (local.get $w) (i32.const 8)))
        (local.set $v (i32.add (local.get $v) (i32.const 8)))
        (local.set $x (i32.add (local.get $x) (i32.const 32)))
        (local.set $z (i32.add (local.get $z) (i32.const 32)))
        (local.set $n (i32.sub (local.get $n) (i32.const 8)))
        (br $next)))
    (f32.store (local.get $y) (f32.mul (f32.load (local.get $s))
      (call $rest8 (local.get $w) (local.get $x) (local.get $C) (call $sum (local.get $a0)))))
    (f32.store offset=4 (local.get $y) (f32.mul (f32.load offset=4 (local.get $s))
      (call $rest8 (local.get $v) (local.get $x) (local.get $C) (call $sum (local.get $a1)))))
    (f32.store (local.get $u) (f32.mul (f32.load (local.get $s))
      (call $rest8 (local.get $w) (local.get $z) (local.get $C) (call $sum (local.get $b0)))))
    (f32.store offset=4 (local.get $u) (f32.mul (f32.load offset=4 (local.get $s))
      (call $rest8 (local.get $v) (local.get $z) (local.get $C) (call $sum (local.get $b1))))))

  ;; One int8 row times one vector.
  (func $one8 (param $w i32) (param $x i32) (param $C i32) (result f32)
    (local $s v128) (local $t v128) (local $half v128) (local $n i32)
    (local.set $n (i32.and (local.get $C) (i32.const -8)))
    (local.set $C (i32.and (local.get $C) (i32.const 7)))
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $n)))
        (local.set $half (v128.load8x8_s (local.get $w)))
        (local.set $s (f32x4.add (local.get $s) (f32x4.mul
          (f32x4.convert_i32x4_s (i32x4.extend_low_i16x8_s (local.get $half)))
          (v128.load (local.get $x)))))
        (local.set $t (f32x4.add (local.get $t) (f32x4.mul
          (f32x4.convert_i32x4_s (i32x4.extend_high_i16x8_s (local.get $half)))
          (v128.load offset=16 (local.get $x)))))
        (local.set $w (i32.add (local.get $w) (i32.const 8)))
        (local.set $x (i32.add (local.get $x) (i32.const 32)))
        (local.set $n (i32.sub (local.get $n) (i32.const 8)))
        (br $next)))
    (call $rest8 (local.get $w) (local.get $x) (local.get $C)
      (call $sum (f32x4.add (local.get $s) (local.get $t)))))

  ;; y[t, r] = s[r] (w[r] . x[t]) for int8 rows and their scales s.
  (func (export "product8") (param $w i32) (param $s i32) (param $x i32) (param $y i32)
    (param $R i32) (param $C i32) (param $T i32)
    (local $r i32) (local $t i32) (local $width i32) (local $out i32) (local $at i32) (local $to i32)
    (local.set $width (i32.shl (local.get $C) (i32.const 2)))
    (local.set $out (i32.shl (local.get $R) (i32.const 2)))
    (block $rows
      (loop $row
        (br_if $rows (i32.ge_s (local.get $r) (local.get $R)))
        (local.set $t (local.get $T))
        (local.set $at (local.get $x))
        (local.set $to (local.get $y))
        (block $tokens
          (loop $token
            (br_if $tokens (i32.le_s (local.get $t) (i32.const 0)))
            (if (i32.or (i32.eq (local.get $t) (i32.const 1))
                        (i32.lt_s (i32.sub (local.get $R) (local.get $r)) (i32.const 2)))
              (then
                (f32.store (local.get $to) (f32.mul (f32.load (local.get $s))
                  (call $one8 (local.get $w) (local.get $at) (local.get $C))))
                (if (i32.ge_s (i32.sub (local.get $R) (local.get $r)) (i32.const 2))
                  (then
                    (f32.store offset=4 (local.get $to) (f32.mul (f32.load offset=4 (local.get $s))
                      (call $one8 (i32.add (local.get $w) (local.get $C)) (local.get $at) (local.get $C))))))
                (local.set $t (i32.sub (local.get $t) (i32.const 1)))
                (local.set $at (i32.add (local.get $at) (local.get $width)))
                (local.set $to (i32.add (local.get $to) (local.get $out))))
              (else
                (call $pair8 (local.get $w) (i32.add (local.get $w) (local.get $C)) (local.get $s)
                  (local.get $at) (i32.add (local.get $at) (local.get $width))
                  (local.get $to) (i32.add (local.get $to) (local.get $out)) (local.get $C))
                (local.set $t (i32.sub (local.get $t) (i32.const 2)))
                (local.set $at (i32.add (local.get $at) (i32.shl (local.get $width) (i32.const 1))))
                (local.set $to (i32.add (local.get $to) (i32.shl (local.get $out) (i32.const 1))))))
            (br $token)))
        (local.set $r (i32.add (local.get $r) (i32.const 2)))
        (local.set $w (i32.add (local.get $w) (i32.shl (local.get $C) (i32.const 1))))
        (local.set $s (i32.add (local.get $s) (i32.const 8)))
        (local.set $y (i32.add (local.get $y) (i32.const 8)))
        (br $row))))

  ;; p r + c, of a polynomial.
  (func $step (param $p v128) (param $r v128) (param $c f32) (result v128)
    (f32x4.add (f32x4.mul (local.get $p) (local.get $r)) (f32x4.splat (local.get $c))))

  ;; e^x of four numbers at most 0: 2^n e^r with |r| <= ln(2) / 2, and e^r by its series (Cephes' expf).
  ;; What is below -87.3 becomes 0.
  (func $exp (param $x v128) (result v128)
    (local $n v128) (local $r v128) (local $p v128)
    (local.set $n (f32x4.nearest (f32x4.mul (local.get $x) (f32x4.splat (f32.const 1.44269504088896341)))))
    (local.set $r (f32x4.sub
      (f32x4.sub (local.get $x) (f32x4.mul (local.get $n) (f32x4.splat (f32.const 0.693359375))))
      (f32x4.mul (local.get $n) (f32x4.splat (f32.const -2.12194440e-4)))))
    (local.set $p (f32x4.splat (f32.const 1.9875691500e-4)))
    (local.set $p (call $step (local.get $p) (local.get $r) (f32.const 1.3981999507e-3)))
    (local.set $p (call $step (local.get $p) (local.get $r) (f32.const 8.3334519073e-3)))
    (local.set $p (call $step (local.get $p) (local.get $r) (f32.const 4.1665795894e-2)))
    (local.set $p (call $step (local.get $p) (local.get $r) (f32.const 1.6666665459e-1)))
    (local.set $p (call $step (local.get $p) (local.get $r) (f32.const 5.0000001201e-1)))
    (local.set $p (f32x4.add
      (f32x4.mul (f32x4.mul (local.get $p) (local.get $r)) (local.get $r))
      (f32x4.add (local.get $r) (f32x4.splat (f32.const 1)))))
    (v128.and
      (f32x4.gt (local.get $x) (f32x4.splat (f32.const -87.3)))
      (f32x4.mul (local.get $p)
        (i32x4.shl (i32x4.add (i32x4.trunc_sat_f32x4_s (local.get $n)) (i32x4.splat (i32.const 127)))
                   (i32.const 23)))))

  ;; x = softmax(x * scale + bias) over n numbers; bias 0 means none. All zeros where all are -infinity.
  ;; x and bias have room for a multiple of four.
  (func $softmax (export "softmax") (param $x i32) (param $bias i32) (param $n i32) (param $scale f32)
    (local $at i32) (local $end i32) (local $most f32)
    (local $v v128) (local $total v128) (local $inverse f32)
    (local.set $end (i32.add (local.get $x) (i32.shl (local.get $n) (i32.const 2))))
    (local.set $most (f32.const -inf))
    (local.set $at (local.get $x))
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $at) (local.get $end)))
        (f32.store (local.get $at) (f32.mul (f32.load (local.get $at)) (local.get $scale)))
        (if (local.get $bias)
          (then (f32.store (local.get $at) (f32.add (f32.load (local.get $at))
            (f32.load (i32.add (local.get $bias) (i32.sub (local.get $at) (local.get $x))))))))
        (local.set $most (f32.max (local.get $most) (f32.load (local.get $at))))
        (local.set $at (i32.add (local.get $at) (i32.const 4)))
        (br $next)))
    (local.set $most (select (f32.const 0) (local.get $most) (f32.eq (local.get $most) (f32.const -inf))))
    (block $filled  ;; what stands after the last number, up to a multiple of four
      (loop $fill
        (br_if $filled (i32.eqz (i32.and (i32.sub (local.get $at) (local.get $x)) (i32.const 15))))
        (f32.store (local.get $at) (f32.const -inf))
        (local.set $at (i32.add (local.get $at) (i32.const 4)))
        (br $fill)))
    (local.set $end (local.get $at))
    (local.set $at (local.get $x))
    (block $raised
      (loop $raise
        (br_if $raised (i32.ge_u (local.get $at) (local.get $end)))
        (local.set $v (call $exp (f32x4.sub (v128.load (local.get $at)) (f32x4.splat (local.get $most)))))
        (local.set $total (f32x4.add (local.get $total) (local.get $v)))
        (v128.store (local.get $at) (local.get $v))
        (local.set $at (i32.add (local.get $at) (i32.const 16)))
        (br $raise)))
    (local.set $inverse (call $sum (local.get $total)))
    (local.set $inverse (f32.div (f32.const 1)
      (select (f32.const 1) (local.get $inverse) (f32.eq (local.get $inverse) (f32.const 0)))))
    (local.set $at (local.get $x))
    (block $divided
      (loop $divide
        (br_if $divided (i32.ge_u (local.get $at) (local.get $end)))
        (v128.store (local.get $at)
          (f32x4.mul (v128.load (local.get $at)) (f32x4.splat (local.get $inverse))))
        (local.set $at (i32.add (local.get $at) (i32.const 16)))
        (br $divide))))

  ;; out = sum over s of weights[s] values[s], S rows of L numbers.
  (func $mix (export "mix")
    (param $weights i32) (param $values i32) (param $out i32) (param $S i32) (param $L i32)
    (local $s i32) (local $at i32) (local $width i32) (local $w v128) (local $one f32)
    (local $a v128) (local $b v128) (local $c v128) (local $d v128)
    (local.set $width (i32.shl (local.get $L) (i32.const 2)))
    (block $wide  ;; sixteen columns
      (loop $columns
        (br_if $wide (i32.lt_s (local.get $L) (i32.const 16)))
        (local.set $a (v128.const f32x4 0 0 0 0))
        (local.set $b (local.get $a))
        (local.set $c (local.get $a))
        (local.set $d (local.get $a))
        (local.set $at (local.get $values))
        (local.set $s (i32.const 0))
        (block $done
          (loop $next
            (br_if $done (i32.ge_s (local.get $s) (local.get $S)))
            (local.set $w (v128.load32_splat
              (i32.add (local.get $weights) (i32.shl (local.get $s) (i32.const 2)))))
            (local.set $a (f32x4.add (local.get $a)
              (f32x4.mul (local.get $w) (v128.load (local.get $at)))))
            (local.set $b (f32x4.add (local.get $b)
              (f32x4.mul (local.get $w) (v128.load offset=16 (local.get $at)))))
            (local.set $c (f32x4.add (local.get $c)
              (f32x4.mul (local.get $w) (v128.load offset=32 (local.get $at)))))
            (local.set $d (f32x4.add (local.get $d)
              (f32x4.mul (local.get $w) (v128.load offset=48 (local.get $at)))))
            (local.set $at (i32.add (local.get $at) (local.get $width)))
            (local.set $s (i32.add (local.get $s) (i32.const 1)))
            (br $next)))
        (v128.store (local.get $out) (local.get $a))
        (v128.store offset=16 (local.get $out) (local.get $b))
        (v128.store offset=32 (local.get $out) (local.get $c))
        (v128.store offset=48 (local.get $out) (local.get $d))
        (local.set $out (i32.add (local.get $out) (i32.const 64)))
        (local.set $values (i32.add (local.get $values) (i32.const 64)))
        (local.set $L (i32.sub (local.get $L) (i32.const 16)))
        (br $columns)))
    (block $last  ;; the columns left over, one by one
      (loop $column
        (br_if $last (i32.le_s (local.get $L) (i32.const 0)))
        (local.set $one (f32.const 0))
        (local.set $at (local.get $values))
        (local.set $s (i32.const 0))
        (block $done
          (loop $next
            (br_if $done (i32.ge_s (local.get $s) (local.get $S)))
            (local.set $one (f32.add (local.get $one) (f32.mul
              (f32.load (i32.add (local.get $weights) (i32.shl (local.get $s) (i32.const 2))))
              (f32.load (local.get $at)))))
            (local.set $at (i32.add (local.get $at) (local.get $width)))
            (local.set $s (i32.add (local.get $s) (i32.const 1)))
            (br $next)))
        (f32.store (local.get $out) (local.get $one))
        (local.set $out (i32.add (local.get $out) (i32.const 4)))
        (local.set $values (i32.add (local.get $values) (i32.const 4)))
        (local.set $L (i32.sub (local.get $L) (i32.const 1)))
        (br $column))))

  ;; The attention of one query: weights = softmax(k q * scale + bias), out = weights v.
  (func (export "attend") (param $q i32) (param $k i32) (param $v i32) (param $bias i32) (param $weights i32)
    (param $out i32) (param $S i32) (param $K i32) (param $L i32) (param $scale f32)
    (call $product (local.get $k) (local.get $q) (local.get $weights)
      (local.get $S) (local.get $K) (i32.const 1))
    (call $softmax (local.get $weights) (local.get $bias) (local.get $S) (local.get $scale))
    (call $mix (local.get $weights) (local.get $v) (local.get $out) (local.get $S) (local.get $L)))
)
