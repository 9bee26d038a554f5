set terminal dumb 60 15
set title "square"
plot [0:4] x*x notitle
