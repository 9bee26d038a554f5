program hello
  implicit none
  integer :: i
  real(8) :: x(5)
  x = [(i * 1.5d0, i = 1, 5)]
  print '(5f8.3)', x
  print '(a,f10.4)', 'sum', sum(x)
end program
