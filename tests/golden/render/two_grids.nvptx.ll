define ptx_kernel void @two_grids_0(ptr %p0, ptr %p1, i64 %n_n) "nvvm.maxntid"="128" {
entry:
  %thread.32 = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %thread = zext i32 %thread.32 to i64
  %block.32 = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %block = zext i32 %block.32 to i64
  %first = icmp eq i64 %thread, 0
  br label %aligned
aligned:
  %t1 = icmp sge i64 %block, 0
  %t2 = icmp slt i64 %block, 3
  %t3 = and i1 %t1, %t2
  br i1 %t3, label %if1, label %if1.done
if1:
  %t4 = sub i64 %block, 0
  %t5 = mul i64 %t4, 128
  %t6 = add i64 %t5, %thread
  %t7 = icmp slt i64 %t6, 300
  br i1 %t7, label %if2, label %if2.done
if2:
  %t8 = getelementptr float, ptr %p0, i64 %t6
  store float 0x4000000000000000, ptr %t8, align 4
  br label %if2.done
if2.done:
  br label %if1.done
if1.done:
  %t9 = add i64 %n_n, 3
  %t10 = icmp sge i64 %block, 3
  %t11 = icmp slt i64 %block, %t9
  %t12 = and i1 %t10, %t11
  br i1 %t12, label %if3, label %if3.done
if3:
  %t13 = sub i64 %block, 3
  %t14 = icmp slt i64 %thread, 64
  br i1 %t14, label %if4, label %if4.done
if4:
  %t15 = mul i64 %t13, 64
  %t16 = add i64 %t15, %thread
  %t17 = icmp slt i64 %t16, %n_n
  br i1 %t17, label %if5, label %if5.done
if5:
  %t18 = getelementptr float, ptr %p1, i64 %t16
  store float 0x4008000000000000, ptr %t18, align 4
  br label %if5.done
if5.done:
  br label %if4.done
if4.done:
  br label %if3.done
if3.done:
  ret void
}
