;; f < .. < g < h, where the time goes.
(defun h (n) (declare (fixnum n) (optimize (speed 1)))
  (let ((s 1)) (declare (fixnum s)) (dotimes (i n) (setf s (mod (+ (* s 31) i) 1000003))) s))
(defun g (n) (1+ (h n)))
(defun f (n) (if (= n 0) (g 100000) (1+ (f (1- n)))))
(let ((start (get-internal-real-time)))
  (loop while (< (- (get-internal-real-time) start) (* 3 internal-time-units-per-second)) do (f 5)))
