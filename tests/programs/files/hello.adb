with Ada.Text_IO;
procedure Hello is
begin
   for I in 1 .. 3 loop
      Ada.Text_IO.Put_Line ("Ada" & Integer'Image (I));
   end loop;
end Hello;
