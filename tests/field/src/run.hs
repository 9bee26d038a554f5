-- f < .. < h, where the time goes.
import Data.IORef
import System.CPUTime
h :: Int -> Int -> Int
h 0 s = s
h n s = h (n - 1) ((s * 31 + n) `rem` 1000003)
{-# NOINLINE h #-}
f :: Int -> Int -> Int
f 0 s = h 200000 s
f n s = 1 + f (n - 1) s
{-# NOINLINE f #-}
main :: IO ()
main = newIORef 0 >>= loop
  where
    loop sum = do
      now <- getCPUTime
      if now > 2 * 10 ^ 12
        then readIORef sum >>= print
        else modifyIORef' sum (+ f 5 (fromIntegral (now `mod` 1000))) >> loop sum
